// The epilogue of 16 bits where rows of the product are pixels and results are written along them: they pass through shared memory as they
// are written, by parts of 64 pixels and PART_FILTERS filters of a warpgroup. `stmatrix` puts eight pixels of a filter side by side, and a
// warp then writes the pixels of every fourth filter of a part, two neighbours a lane: as a word wherever that is one in memory.
//
// needs macros: DEVICE, READS_ELEMENTS
// needs constants: ATOMS, COOPERATIVE, FILTERS, PART_FLOATS, PRODUCERS, ROWS, TILE_F, WIDTH, Y_IMAGES, Y_PITCH, Y_PLANE
// needs sizes: y_n
// needs types: Args, Channel, Column, Coord, Early, Pixels, Residuals, Shape, T, idx
// needs functions: affine_columns, chain, column_of, from_float, interleaved, make_plain, pixels_of, row_of_pixel, shared_address, to_float

static_assert(sizeof(T) == 2 && !READS_ELEMENTS, "what lanes have of a part is finished where it is summed");
// Filters of a part, parts of 64 rows, and elements from a filter's rows to the next one's: `stmatrix` writes those of eight to all banks.
constexpr int PART_FILTERS = WIDTH > 32 ? 64 : 32, PARTS = (WIDTH + PART_FILTERS - 1) / PART_FILTERS,
              ROW_PITCH = 64 + 8;
static_assert(PART_FILTERS * ROW_PITCH * (int)sizeof(T) <= 4 * PART_FLOATS * 4,
              "a part has room in those of four warps");

// Whether a part may have pixels of more than two images.
constexpr bool SMALL_PLANES = Y_IMAGES > 1 && Y_PLANE < 64;

// Two neighbouring filters' results of a row, by two conversions: one for both leaves some tiles too few registers.
DEVICE unsigned pair_of(float low, float high) {
  return from_float<T>(low).bits | (unsigned)from_float<T>(high).bits << 16;
}

// An element of memory, or 0 where there is none. No branch leads around it: of one for each result the compiler makes several blocks,
// which take it as long as all the rest of a kernel.
DEVICE T element_if(const T* at, bool exists) {
  T element;
  asm volatile("{\n.reg .pred exists;\nsetp.ne.b32 exists, %2, 0;\nmov.b16 %0, 0;\n@exists ld.global.b16 %0, [%1];\n}"
               : "=h"(element.bits)
               : "l"(at), "r"((int)exists));
  return element;
}

// Finishes this thread's results of a part, by pairs of filters, and stores them to shared memory. The compiler must know which registers accumulators are in, so
// the part is found by comparing, and the comment in the instruction keeps the compiler from merging the stores of several parts.
template <int AT, class F> DEVICE void stage_part(const float (&acc)[ATOMS][WIDTH / 2], unsigned to, int part,
                                                  F pair_of_rows) {
  if constexpr (AT < ATOMS * PARTS) {
    if (part != AT) return stage_part<AT + 1>(acc, to, part, pair_of_rows);
#pragma unroll
    for (int eight = 0; eight < PART_FILTERS / 8; eight += 2) {
      unsigned pairs[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int column = AT % PARTS * PART_FILTERS + (eight + i / 2) * 8, at = column / 2 + i % 2 * 2;
        float taken[2] = {};
        // What is finished of other parts is not kept.
        if (column < WIDTH)
          asm volatile("mov.b32 %0, %2; // part %4\nmov.b32 %1, %3;"
                       : "=f"(taken[0]), "=f"(taken[1])
                       : "f"(acc[AT / PARTS][at % (WIDTH / 2)]), "f"(acc[AT / PARTS][(at + 1) % (WIDTH / 2)]), "n"(AT));
        pairs[i] = column < WIDTH ? pair_of_rows(column + threadIdx.x % 4 * 2, i % 2, taken[0], taken[1]) : 0;
      }
      asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4}; // part %5" ::"r"(
                       to + eight * 8 * ROW_PITCH * (int)sizeof(T)),
                   "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3]), "n"(AT)
                   : "memory");
    }
  }
}

// Where a result of a tile's first filter is in memory.
DEVICE idx result_of(const Shape& s, const Column& column, int pixel) {
  const int image = pixel / Y_PLANE;
  return image * s.y_n + (column.group * FILTERS + column.filter) * (idx)Y_PITCH + (pixel - image * Y_PLANE);
}

// The results that a lane writes of each of its warp's filters, which are an even number apart, so that a word of one is one of all: those
// of `count` pixels of an image from pixel `first` on, which is a part's pixel number `at`, or of two neighbouring ones of any image.
struct Lane {
  // Where in a filter's rows the pixels of a word lie, and one that is no part of a word. Where they go, and whether they do: a word, its
  // lower half alone, and the other pixel.
  const T *low, *high, *single;
  T *word, *other;
  bool is_word, is_low, is_single;

  DEVICE Lane(const Args& args, const Column& column, const T* rows, int first, int at, int count) {
    const int lane = threadIdx.x % 32, filter = threadIdx.x / 32 % 4;
    T* const y = (T*)args.y + filter * Y_PITCH;
    rows += filter * ROW_PITCH;
    if (SMALL_PLANES) {
      const idx one = result_of(args.shape, column, first + lane * 2),
                next = result_of(args.shape, column, first + lane * 2 + 1);
      low = rows + row_of_pixel(lane * 2), high = single = rows + row_of_pixel(lane * 2 + 1);
      word = y + one, other = y + next;
      is_word = lane * 2 + 1 < count && (one + filter * Y_PITCH) % 2 == 0 && next == one + 1;
      is_low = !is_word && lane * 2 < count, is_single = !is_word && lane * 2 + 1 < count;
      return;
    }
    const idx begin = result_of(args.shape, column, first);
    const int odd = (int)(begin + filter * Y_PITCH) & 1, pixel = lane * 2 + odd, words = (count - odd) / 2;
    // A first pixel that is no part of a word is lane 0's, a last one that is none the lane's behind the last word, or lane 1's.
    const bool leads = lane == 0 && odd != 0, trails = (count - odd) % 2 != 0 && lane == (words > 0 ? words : 1);
    low = rows + row_of_pixel((at + pixel) % 64), high = rows + row_of_pixel((at + pixel + 1) % 64);
    single = rows + row_of_pixel((at + (leads ? 0 : count - 1)) & 63);
    word = y + begin + pixel, other = y + begin + (leads ? 0 : count - 1);
    is_word = lane < words, is_low = false, is_single = count > 0 && (leads || trails);
  }

  // Writes those of filters of a part, which are the tile's from the first one on: the loads of some are on their way together.
  template <bool SINGLES> DEVICE void write(int first, int filters) const {
    constexpr int SOME = 4;
    filters -= threadIdx.x / 32 % 4;
    T *const words = word + first * (idx)Y_PITCH, *const others = other + first * (idx)Y_PITCH;
#pragma unroll
    for (int f = 0; f < PART_FILTERS; f += SOME * 4) {
      if (f >= filters) return;
      unsigned short lower[SOME], upper[SOME], alone[SOME];
#pragma unroll
      for (int i = 0; i < SOME; i++) {
        const int from = (f + i * 4) * ROW_PITCH;
        lower[i] = low[from].bits, upper[i] = high[from].bits;
        if (SINGLES) alone[i] = single[from].bits;
      }
#pragma unroll
      for (int i = 0; i < SOME; i++) {
        const idx on = (f + i * 4) * (idx)Y_PITCH;
        const bool exists = f + i * 4 < filters;
        if (exists && is_word) *(unsigned*)(words + on) = lower[i] | (unsigned)upper[i] << 16;
        if (SMALL_PLANES && exists && is_low) words[on].bits = lower[i];
        if (SINGLES && exists && is_single) others[on].bits = alone[i];
      }
    }
  }
  DEVICE void write_part(int first, int filters) const {
    // Every second row of planes of an odd number has no single pixels, but perhaps behind the last word.
    if (__any_sync(0xffffffff, is_single || is_low)) write<true>(first, filters);
    else write<false>(first, filters);
  }
};

template <bool PLAIN>
DEVICE void epilogue(Args args, float (&acc)[ATOMS][WIDTH / 2], float* part, const Channel* channels, const Early&,
                     int tile) {
  if (PLAIN) make_plain(args);
  const Shape& s = args.shape;
  const Column column = column_of(tile);
  const Pixels pixels = pixels_of(s, tile);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int warpgroup = threadIdx.x / 128 - PRODUCERS, consumer = warpgroup % COOPERATIVE;
  const T* const rows = (const T*)(part - warp * PART_FLOATS);
  // Of the four matrices that are stored at once the second and the fourth have the lower rows, the last two the next eight filters.
  const unsigned to = shared_address(rows + (lane / 16 * 8 + lane % 8) * ROW_PITCH + warp * 16 + lane / 8 % 2 * 8);
  const int filters = FILTERS - column.filter < TILE_F ? FILTERS - column.filter : TILE_F;
  const auto meet = [&] { asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 3) : "memory"); };
  T* const y = (T*)args.y;
  affine_columns(args, acc, channels);
#pragma unroll 1
  for (int along = 0; along < ATOMS; along++) {
    const int begin = consumer * ROWS + along * 64, first = pixels.first + begin;
    const auto pair_of_rows = [&](int f, int half, float low, float high) {
      float v[2] = {low, high};
#pragma unroll
      for (int e = 0; e < 2; e++) v[e] = chain(args, channels[f + e], Residuals<2>(), e, v[e], Coord());
      if (!PLAIN && args.beta != 0.f) {
        // Known here alone, such that no addresses are kept in registers.
        int filter = f;
        asm volatile("" : "+r"(filter));
        const int pixel = pixels.first + interleaved(begin + warp * 16 + lane / 4 + half * 8);
        const T* const at = y + (result_of(s, column, pixel) + filter * (idx)Y_PITCH);
        const int exist = pixel < pixels.end ? filters - filter : 0;
#pragma unroll
        for (int e = 0; e < 2; e++) v[e] = fmaf(args.beta, to_float(element_if(at + e * Y_PITCH, e < exist)), v[e]);
      }
      return pair_of(v[0], v[1]);
    };
    const int left = pixels.end - first, count = left < 64 ? left : 64, of_image = Y_PLANE - first % Y_PLANE;
    const int one = SMALL_PLANES || Y_IMAGES == 1 || count < of_image ? count : of_image;
    const Lane of(args, column, rows, first, 0, one);
#pragma unroll 1
    for (int at = 0; at < PARTS; at++) {
      if (at * PART_FILTERS >= filters) break;
      // All warps have read the part before.
      meet();
      stage_part<0>(acc, to, along * PARTS + at, pair_of_rows);
      meet();
      const int some = filters - at * PART_FILTERS < PART_FILTERS ? filters - at * PART_FILTERS : PART_FILTERS;
      of.write_part(at * PART_FILTERS, some);
      if (!SMALL_PLANES && Y_IMAGES > 1 && one < count)
        Lane(args, column, rows, first + one, one, count - one).write_part(at * PART_FILTERS, some);
    }
  }
}
