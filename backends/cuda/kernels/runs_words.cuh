// How a thread reads the pixels of its rows to registers, where runs are of 16 bits: an element's neighbours along a line come by the same
// words, so that what a thread reads of a channel serves STREAMED_TAPS taps of a line, and both of its rows where these are neighbours.
// Another line of taps is another offset in the stage, also an odd one. Taps that lie beyond the image are zeros.
//
// needs macros: DEVICE
// needs constants: APART, ATOMS, BOXES, BY_BOXES, CHANNEL_PITCH, CHANNEL_STEPS, COLUMNS_OF_BOX, COOPERATIVE, COVERED_P, DILATION_D, DILATION_H,
//   DILATION_W, GUARD, IMAGE_D, IMAGE_ELEMENTS, IMAGE_H, IMAGE_PLANE, IMAGE_W, INTERLEAVED, OUTPUT_D, OUTPUT_PLANE, PADDED, PHASES,
//   PRODUCERS, ROWS, SAME, SPANS, STAGES, STEPS, STREAMED_TAPS, TAPS_D, TAPS_H, TAPS_W, TAP_D, TAP_H, TAP_W, TILE_K, WHOLE, X_BYTES
// needs types: Barriers, FirstTap, PipelineState, T, TilePixels
// needs functions: behind, interleaved, mbarrier_wait

static_assert(ATOMS == 1 && TAPS_H * TAPS_W <= 32 && sizeof(T) == 2, "a thread has two rows, and a bit for each tap");
static_assert(STREAMED_TAPS == TAPS_W || STREAMED_TAPS == 1, "a line of taps, or one tap");
static_assert(BY_BOXES ? TILE_K / PHASES % 4 == 0 : WHOLE && PHASES == 1, "four slots are of the same phase");
// Whether taps have planes of the image of their own.
constexpr bool DEEP = IMAGE_D * OUTPUT_D * TAPS_D > 1;
// Whether a thread's rows are neighbours, which it reads as one.
constexpr bool PAIRED = INTERLEAVED == 2;
static_assert(PAIRED || INTERLEAVED == 1, "rows are pixels in their order");
// From the first element that a thread reads to the last, and words that have them wherever the first one begins.
constexpr int SPAN_OF_TAPS = (STREAMED_TAPS - 1) * DILATION_W + (PAIRED ? 1 : 0), WORDS = (SPAN_OF_TAPS + 1) / 2 + 1;
constexpr int READ_ROWS = PAIRED ? 1 : 2;

// Whether what a thread reads of the first channel always begins a word: neighbours of one tap, of tiles that begin with an even pixel.
constexpr bool BEGINS_WORD =
    PAIRED && SAME && !SPANS && COVERED_P % 2 == 0 && IMAGE_ELEMENTS % 2 == 0 && GUARD % 2 == 0;

// The rows of a thread.
struct PixelRows {
  // Of each row: where its image begins in a stage, where its first tap lies behind the begin of a channel's run, where that begins in
  // the image, its plane, and which taps of a plane of them lie in the image, as bits.
  int image_at[2], at[2], begin[2], d[2];
  unsigned inside[2];

  DEVICE PixelRows(const TilePixels& pixels, int first_row) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      // Rows without a pixel have that of another one.
      const int row = interleaved(first_row + i * 8), left = pixels.last - pixels.first;
      const int pixel = pixels.first + (row < left ? row : left), image = SPANS ? pixel / OUTPUT_PLANE : 0;
      const FirstTap tap(pixel - image * OUTPUT_PLANE);
      // Of four slots that follow one another a thread has one.
      image_at[i] = image * IMAGE_ELEMENTS + GUARD + (int)threadIdx.x % 4 * CHANNEL_PITCH;
      begin[i] = pixels.begin(image);
      at[i] = tap.at() - begin[i];
      d[i] = tap.d;
      unsigned line = 0;
      inside[i] = 0;
#pragma unroll
      for (int t = 0; t < TAPS_W; t++) line |= (unsigned)(tap.w + t * DILATION_W) < IMAGE_W ? 1u << t : 0;
#pragma unroll
      for (int t = 0; t < TAPS_H; t++)
        inside[i] |= (unsigned)(tap.h + t * DILATION_H) < IMAGE_H ? line << t * TAPS_W : 0;
    }
  }
};

// How far the elements of a slot are moved, as its phase's plane does not begin at a multiple of 16 bytes.
DEVICE constexpr int moved(int slot) { return behind(slot / (TILE_K / PHASES) * IMAGE_PLANE); }

// The low or the high halves of two words.
DEVICE unsigned halves(unsigned low, unsigned high, bool upper_of_low, bool upper_of_high) {
  unsigned both;
  asm("prmt.b32 %0, %1, %2, %3;"
      : "=r"(both)
      : "r"(low), "r"(high), "r"((upper_of_low ? 0x32u : 0x10u) | (upper_of_high ? 0x7600u : 0x5400u)));
  return both;
}

// What a thread reads of 16 channels for some taps of a line.
struct PixelWords {
  // Of each row, and of four channels.
  unsigned words[READ_ROWS][4][WORDS];
  // Of each row: the address of its first element in the stage, whether that is a word's upper half, and which taps lie in the image.
  unsigned from[READ_ROWS], inside[2];
  bool odd[READ_ROWS];

  // Of the step's 16 channels number `block`.
  DEVICE void load(int block) {
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
      for (int i = 0; i < READ_ROWS; i++) {
        const int slot = (block * 4 + n) * 4, by = moved(slot);
        // Where a word begins, from which an odd element is moved by an odd number to the next word's begin.
        const unsigned begin = from[i] - (odd[i] ? by % 2 ? -2 : 2 : 0);
#pragma unroll
        for (int w = 0; w < WORDS; w++) {
          const unsigned at = begin + ((slot * CHANNEL_PITCH + by / 2 * 2) * 2 + w * 4);
          unsigned& word = words[i][n][w];
          // A last word is read where the first element is odd, or always. Else it is kept, as the compiler is told: it would know of no
          // begin of what is kept else, and give it a register throughout the kernel.
          if (w * 2 <= SPAN_OF_TAPS) asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(at) : "memory");
          else
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n@p ld.shared.b32 %0, [%1];\n}"
                         : "+r"(word)
                         : "r"(at), "r"((int)(odd[i] != (by % 2 != 0)))
                         : "memory");
        }
      }
  }

  // Those factors of a tap, as `wgmma` takes them: of the thread's first and last two channels, of a row and of the row 8 below it.
  DEVICE void put(unsigned (&factors)[STREAMED_TAPS][4], int block) const {
#pragma unroll
    for (int t = 0; t < STREAMED_TAPS; t++)
#pragma unroll
      for (int j = 0; j < 2; j++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const int element = t * DILATION_W + (PAIRED ? i : 0), row = PAIRED ? 0 : i;
          unsigned word[2];
          bool upper[2];
#pragma unroll
          for (int e = 0; e < 2; e++) {
            const int n = e * 2 + j;
            const bool begins_odd = odd[row] != (moved((block * 4 + n) * 4) % 2 != 0);
            const unsigned(&of)[WORDS] = words[row][n];
            upper[e] = begins_odd != (element % 2 != 0);
            word[e] = element % 2 == 0 || !begins_odd ? of[element / 2] : of[(element / 2 + 1) % WORDS];
          }
          const unsigned both = halves(word[0], word[1], upper[0], upper[1]);
          factors[t][i + j * 2] = PADDED && (inside[i] >> t & 1) == 0 ? 0 : both;
        }
  }
};

// The lines of taps of a tile, step by step, or its taps.
struct LineWalk {
  const PixelRows& rows;
  unsigned shared;
  Barriers barriers;
  PipelineState<STAGES> pipe;
  int step, h, w;

  DEVICE LineWalk(const PixelRows& rows, unsigned shared, const Barriers& barriers, unsigned count)
      : rows(rows), shared(shared), barriers(barriers), pipe(count * STEPS), step(0), h(0), w(0) {}

  // Says which line of a plane's taps this is, where the compiler cannot know that it is a constant.
  DEVICE void is_at(int line) { h = line, w = 0; }

  // Whether these are the last taps of their stage.
  DEVICE bool ends() const { return h == TAPS_H - 1 && (STREAMED_TAPS == TAPS_W || w == TAPS_W - 1); }

  DEVICE void next() {
    if (ends()) step++, pipe.next();
    if (STREAMED_TAPS == TAPS_W || ++w == TAPS_W) w = 0, h = h + 1 == TAPS_H ? 0 : h + 1;
  }

  // Finds where a thread's pixels lie.
  DEVICE void find(PixelWords& words) const {
    if (h + w == 0) mbarrier_wait(barriers.full(pipe.stage), pipe.phase);
    const int plane = TAPS_D > 1 ? step / CHANNEL_STEPS : 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const bool in_depth = !DEEP || (unsigned)(rows.d[i] + plane * DILATION_D) < IMAGE_D;
      words.inside[i] = in_depth ? rows.inside[i] >> (h * TAPS_W + w) : 0;
    }
#pragma unroll
    for (int i = 0; i < READ_ROWS; i++) {
      const int at = rows.at[i] + h * TAP_H + w * TAP_W + behind(rows.begin[i] + plane * TAP_D);
      // A box has all channels.
      int box = 0;
#pragma unroll
      for (int b = 1; b < (BY_BOXES ? BOXES : 1); b++) box += at >= b * APART ? 1 : 0;
      const int element = rows.image_at[i] + at + box * (TILE_K * COLUMNS_OF_BOX - APART);
      words.odd[i] = !BEGINS_WORD && element % 2 != 0;
      words.from[i] = shared + pipe.stage * X_BYTES + (BEGINS_WORD ? element & -2 : element) * 2;
    }
  }
};

// The first row of a thread.
DEVICE int first_row() {
  return (threadIdx.x / 128 - PRODUCERS) % COOPERATIVE * ROWS + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
}

// The tile's pixel in one of a thread's rows.
DEVICE int pixel_of_row(int, int row) { return interleaved(first_row() + row * 8); }
