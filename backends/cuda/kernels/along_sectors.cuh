// The epilogue of 16 bits where rows of the product are pixels of a plane, of which a thread has two neighbours, and tiles overlap: of each
// filter a tile writes whole sectors of 32 bytes, those that begin in what it covers, and single pixels only where a plane begins or ends,
// so that memory completes no sector of two tiles. Results pass through shared memory as they are written, all pixels of a tile side by
// side, by parts of PART_FILTERS filters. A warp then writes every so many of them, a word of two pixels a lane.
//
// needs macros: DEVICE, READS_ELEMENTS
// needs constants: ATOMS, COOPERATIVE, COVERED_P, FILTERS, INTERLEAVED, OVERLAP, PART_FLOATS, PRODUCERS, TILE_F, TILE_P, WIDTH, Y_PITCH, Y_PLANE
// needs sizes: y_n
// needs types: Args, Channel, Column, Coord, Early, Residuals, T, TilePixels, idx
// needs functions: affine_columns, chain, column_of, from_float, make_plain, shared_address, to_float

constexpr int SECTOR = 32 / (int)sizeof(T);
static_assert(sizeof(T) == 2 && ATOMS == 1 && INTERLEAVED == 2 && OVERLAP >= SECTOR - 1 && !READS_ELEMENTS,
              "a thread has words of a tile whose last sector is whole");
// Parts of a tile, which are about equal, filters of a part, and words from a filter's pixels to the next one's: eight words of four filters
// that are two apart lie in all banks.
constexpr int PARTS = (WIDTH + 63) / 64, PART_FILTERS = ((WIDTH + PARTS - 1) / PARTS + 7) / 8 * 8,
              ROW_PITCH = TILE_P / 2 + 4;
static_assert(PART_FILTERS * ROW_PITCH <= COOPERATIVE * 4 * PART_FLOATS, "a part has room in those of all warps");
// Whether there is a filter for every column of every part.
constexpr bool WHOLE_PARTS = FILTERS % TILE_F == 0 && TILE_F % PART_FILTERS == 0;
// Warps, each of which takes every so many filters, how many of these begin differently far behind a sector's begin before that repeats,
// and words of a filter that a lane has.
constexpr int WARPS = COOPERATIVE * 4,
              PHASES_OF_WARP = COOPERATIVE == 4   ? 1
                               : COOPERATIVE == 2 ? 2
                                                  : 4,
              WORDS_OF_LANE = TILE_P / 64,
              TOGETHER = (PART_FILTERS + PHASES_OF_WARP * WARPS - 1) / (PHASES_OF_WARP * WARPS);

// Finishes this thread's results of a part, by pairs of pixels, and stores them to shared memory. The compiler must know which registers
// accumulators are in, so the part is found by comparing, and the comment in the instruction keeps the compiler from merging the stores of
// several parts.
template <int AT, class F> DEVICE void stage_part(const float (&acc)[ATOMS][WIDTH / 2], unsigned to, int part,
                                                  F word_of_pixels) {
  if constexpr (AT < PARTS) {
    if (part != AT) return stage_part<AT + 1>(acc, to, part, word_of_pixels);
#pragma unroll
    for (int i = 0; i < PART_FILTERS / 4; i++) {
      const int column = AT * PART_FILTERS + i / 2 * 8, at = column / 2 + i % 2;
      if (column >= WIDTH) break;
      float pair[2];
      // What is finished of other parts is not kept.
      asm volatile("mov.b32 %0, %2; // part %4\nmov.b32 %1, %3;"
                   : "=f"(pair[0]), "=f"(pair[1])
                   : "f"(acc[0][at % (WIDTH / 2)]), "f"(acc[0][(at + 2) % (WIDTH / 2)]), "n"(AT));
      const unsigned word = word_of_pixels(column + threadIdx.x % 4 * 2 + i % 2, pair);
      asm volatile("st.shared.b32 [%0], %1; // part %2" ::"r"(to + (i / 2 * 8 + i % 2) * ROW_PITCH * 4), "r"(word),
                   "n"(AT)
                   : "memory");
    }
  }
}

// What a warp writes of a part.
struct Sectors {
  // How far behind a sector's begin the first pixel of the warp's first filter lies, how many pixels there are, and whether the first one
  // begins a plane, and the last one ends it.
  int behind, count;
  bool begins, ends;

  // Writes those of so many filters from the warp's first one on. Where a first pixel is ODD, words are halves of two others.
  template <bool ODD> DEVICE void write(const unsigned* from, T* to, int filters) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int phase = 0; phase < PHASES_OF_WARP; phase++) {
      const int by = behind + phase * WARPS * (int)(Y_PITCH % SECTOR) & SECTOR - 1;
      const int first = (begins ? 0 : (-by & SECTOR - 1) >> 1) + lane;
      const int end = ends ? (count - (int)ODD) >> 1 : ((by + COVERED_P + SECTOR - 1 & -SECTOR) - by) >> 1;
      const unsigned* const words = from + (phase * WARPS * ROW_PITCH + first);
      T* const y = to + ((int)ODD + first * 2);
      unsigned low[TOGETHER][WORDS_OF_LANE], high[TOGETHER][WORDS_OF_LANE];
#pragma unroll
      for (int i = 0; i < TOGETHER; i++)
#pragma unroll
        for (int j = 0; j < WORDS_OF_LANE; j++) {
          const int at = i * PHASES_OF_WARP * WARPS * ROW_PITCH + j * 32;
          if ((phase + i * PHASES_OF_WARP) * WARPS >= PART_FILTERS) continue;
          low[i][j] = words[at];
          if (ODD) high[i][j] = words[at + 1];
        }
#pragma unroll
      for (int i = 0; i < TOGETHER; i++)
#pragma unroll
        for (int j = 0; j < WORDS_OF_LANE; j++) {
          const int f = (phase + i * PHASES_OF_WARP) * WARPS;
          const bool whole = WHOLE_PARTS && PART_FILTERS % WARPS == 0;
          if (f < PART_FILTERS && (whole || f < filters) && first + j * 32 < end)
            *(unsigned*)(y + f * (idx)Y_PITCH + j * 64) = ODD ? __byte_perm(low[i][j], high[i][j], 0x5432) : low[i][j];
        }
    }
    const bool leads = begins && ODD, trails = ends && (count - (int)ODD) % 2 != 0;
    if (!leads && !trails) return;
    const int pixel = lane == 0 ? 0 : count - 1;
    if (lane == 0 ? !leads : lane > 1 || !trails) return;
#pragma unroll 1
    for (int f = 0; f < filters; f += WARPS) to[f * (idx)Y_PITCH + pixel] = ((const T*)(from + f * ROW_PITCH))[pixel];
  }
};

template <bool PLAIN>
DEVICE void epilogue(Args args, float (&acc)[ATOMS][WIDTH / 2], float* part, const Channel* channels, const Early&,
                     int tile) {
  if (PLAIN) make_plain(args);
  const Column column = column_of(tile);
  const TilePixels pixels(tile);
  const int lane = threadIdx.x % 32, set = (threadIdx.x / 128 - PRODUCERS) / COOPERATIVE;
  // The warp of the set, the same for all lanes.
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32 - PRODUCERS * 4 - set * WARPS, 0);
  const unsigned* const rows = (const unsigned*)(part - warp * PART_FLOATS);
  const unsigned to = shared_address(rows + lane % 4 * 2 * ROW_PITCH + warp * 8 + lane / 4);
  const int filters = FILTERS - column.filter < TILE_F ? FILTERS - column.filter : TILE_F;
  const int first = pixels.first, count = pixels.last + 1 - first;
  T* const y =
      (T*)args.y + (pixels.image * args.shape.y_n + (column.group * FILTERS + column.filter) * (idx)Y_PITCH + first);
  const auto meet = [&] { asm volatile("bar.sync %0, %1;" ::"r"(set + 3), "n"(COOPERATIVE * 128) : "memory"); };
  const auto word_of_pixels = [&](int f, const float(&pair)[2]) {
    unsigned word = 0;
#pragma unroll
    for (int e = 0; e < 2; e++) {
      float v = chain(args, channels[f], Residuals<2>(), e, pair[e], Coord());
      if (!PLAIN && args.beta != 0.f) {
        // Known here alone, such that no addresses are kept in registers.
        int filter = f;
        asm volatile("" : "+r"(filter));
        const int pixel = (warp * 8 + lane / 4) * 2 + e;
        if (pixel < count && filter < filters) v = fmaf(args.beta, to_float(y[filter * (idx)Y_PITCH + pixel]), v);
      }
      word |= (unsigned)from_float<T>(v).bits << e * 16;
    }
    return word;
  };
  affine_columns(args, acc, channels);
  Sectors of = {(int)((size_t)y / sizeof(T) % SECTOR) + warp * (int)(Y_PITCH % SECTOR) & SECTOR - 1, count, first == 0,
                first + count == Y_PLANE};
#pragma unroll 1
  for (int at = 0; at < PARTS; at++) {
    if (at * PART_FILTERS >= filters) break;
    // All warps have read the part before.
    meet();
    stage_part<0>(acc, to, at, word_of_pixels);
    meet();
    const int left = filters - at * PART_FILTERS, some = (left < PART_FILTERS ? left : PART_FILTERS) - warp;
    T* const y_of = y + (at * PART_FILTERS + warp) * (idx)Y_PITCH;
    if (of.behind % 2 == 0) of.write<false>(rows + warp * ROW_PITCH, y_of, some);
    else of.write<true>(rows + warp * ROW_PITCH, y_of, some);
    of.behind = of.behind + PART_FILTERS * (int)(Y_PITCH % SECTOR) & SECTOR - 1;
  }
}
