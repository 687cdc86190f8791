// How a thread reads the pixels of its rows to registers, where they come as runs: another tap is another offset in the stage. Taps that
// lie beyond the image are zeros.
//
// needs macros: DEVICE
// needs constants: ATOMS, BOXES, BY_BOXES, CHANNELS, CHANNEL_PITCH, CHANNEL_STEPS, COLUMNS_OF_BOX, COOPERATIVE, DILATION_D,
//   DILATION_H, DILATION_W, GUARD, IMAGE_D, IMAGE_ELEMENTS, IMAGE_H, IMAGE_PLANE, IMAGE_W, OUTPUT_D, OUTPUT_PLANE, PADDED,
//   PRODUCERS, ROWS, SPANS, STAGES, STEPS, TAPS_D, TAPS_H, TAPS_W, TAP_D, TAP_H, TAP_W, TILE_K, X_BYTES
// needs types: Barriers, FirstTap, PipelineState, TilePixels
// needs functions: behind, interleaved, mbarrier_wait

static_assert(ATOMS == 1 && TAPS_H * TAPS_W <= 32, "a thread has two rows, and a bit for each tap");
// Whether taps have planes of the image of their own.
constexpr bool DEEP = IMAGE_D * OUTPUT_D * TAPS_D > 1;
// Channels of the last step. Boxes have zeros behind those of the tensor, which has one group or whole steps.
constexpr int LAST_CHANNELS = BY_BOXES ? TILE_K : CHANNELS - (CHANNEL_STEPS - 1) * TILE_K;

// The rows of a thread.
struct PixelRows {
  // Of each row: where its image begins in a stage, where its first tap lies behind the begin of a channel's run, where that begins in
  // the image, its plane, and which taps of a plane of them lie in the image, as bits.
  int image_at[2], at[2], begin[2], d[2];
  unsigned inside[2];

  DEVICE PixelRows(const TilePixels& pixels, int group, int first_row) {
    // Images begin at multiples of 16 bytes, and four channels take as many.
    const int channel = BY_BOXES ? 0 : group * CHANNELS + (int)threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      // Rows without a pixel have that of another one.
      const int row = interleaved(first_row + i * 8), left = pixels.last - pixels.first;
      const int pixel = pixels.first + (row < left ? row : left), image = SPANS ? pixel / OUTPUT_PLANE : 0;
      const FirstTap tap(pixel - image * OUTPUT_PLANE);
      // Of eight channels a thread has two, four apart.
      image_at[i] = image * IMAGE_ELEMENTS + GUARD + (int)threadIdx.x % 4 * CHANNEL_PITCH;
      at[i] = tap.at() - pixels.begin(image);
      begin[i] = channel * IMAGE_PLANE + pixels.begin(image);
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

// The taps of a tile, step by step.
struct TapWalk {
  const PixelRows& rows;
  unsigned shared;
  Barriers barriers;
  PipelineState<STAGES> pipe;
  int step, h, w;

  DEVICE TapWalk(const PixelRows& rows, unsigned shared, const Barriers& barriers, unsigned count)
      : rows(rows), shared(shared), barriers(barriers), pipe(count * STEPS), step(0), h(0), w(0) {}

  // Says which tap of a plane this is, where the compiler cannot know that it is a constant.
  DEVICE void is_at(int tap) { h = tap / TAPS_W, w = tap % TAPS_W; }

  // Whether this is the last tap of its stage.
  DEVICE bool ends() const { return h == TAPS_H - 1 && w == TAPS_W - 1; }

  DEVICE void next() {
    if (ends()) step++, pipe.next();
    if (++w == TAPS_W) w = 0, h = h + 1 == TAPS_H ? 0 : h + 1;
  }

  // Reads the thread's factors of a tap in COUNT times 8 channels, as `wgmma` takes them: of each 8 those at lane % 4 and 4 behind it,
  // of a row and of the row 8 below it.
  template <int COUNT, class V> DEVICE void load(V (&v)[COUNT][4], int first) {
    if (first == 0 && h + w == 0) mbarrier_wait(barriers.full(pipe.stage), pipe.phase);
    const int plane = TAPS_D > 1 ? step / CHANNEL_STEPS : 0, offset = h * TAP_H + w * TAP_W;
    unsigned from[2];
    bool inside[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int at = rows.at[i] + offset + behind(rows.begin[i] + plane * TAP_D);
      int box = 0;
#pragma unroll
      for (int b = 1; b < (BY_BOXES ? BOXES : 1); b++) box += at >= b * COLUMNS_OF_BOX ? 1 : 0;
      // A box has all channels.
      from[i] = shared + pipe.stage * X_BYTES + (rows.image_at[i] + at + box * ((TILE_K - 1) * COLUMNS_OF_BOX)) * 4;
      inside[i] = (rows.inside[i] >> (h * TAPS_W + w) & 1) != 0 &&
                  (!DEEP || (unsigned)(rows.d[i] + plane * DILATION_D) < IMAGE_D);
    }
#pragma unroll
    for (int k = 0; k < COUNT; k++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        asm volatile("ld.shared.b32 %0, [%1];"
                     : "=r"((unsigned&)v[k][e])
                     : "r"(from[e % 2] + ((first + k) * 8 + e / 2 * 4) * (CHANNEL_PITCH * 4))
                     : "memory");
#pragma unroll
    for (int k = 0; k < COUNT; k++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        if (PADDED && !inside[e % 2]) v[k][e] = 0;
        // Channels behind the last one are zeros: the stage has what an earlier step left there.
        if (LAST_CHANNELS < TILE_K && step % CHANNEL_STEPS == CHANNEL_STEPS - 1 &&
            (first + k) * 8 + e / 2 * 4 + (int)threadIdx.x % 4 >= LAST_CHANNELS)
          v[k][e] = 0;
      }
  }
};

// The first row of a thread.
DEVICE int first_row() {
  return (threadIdx.x / 128 - PRODUCERS) % COOPERATIVE * ROWS + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
}
