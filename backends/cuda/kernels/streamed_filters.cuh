// Filters that TMA cannot load and that a block has no room for: one launch writes them to memory as the main loop wants them
// in shared memory, for every column of tiles the filters of each step one after the other, and later launches, the next or many,
// bring a step's filters by one bulk copy. A step has STREAMED_TAPS taps, in TILE_K channels. These are SLOTTED where threads
// read pixels of 16 bits to registers: a slot is where a channel's pixels lie in a stage, the channels of each of PHASES after those of
// the one before, and of the four slots that follow one another a thread has one.
//
// needs macros: DEVICE
// needs constants: BY_PLANES, CHANNELS, COLUMNS, FILTERS, FILTER_STAGES, FILTER_STEPS, FILTER_TILES, PHASES, ROW,
//   SLOTTED, SPLIT, STREAMED, STREAMED_TAPS, TAPS, TAPS_H, TAPS_W, TILE_F, TILE_K, W_AT, W_BYTES, W_LOADED
// needs sizes: w_k
// needs types: Barriers, Launch, PipelineState, T
// needs functions: begin_grid, bulk_load, low_word_of, mbarrier_expect_tx, mbarrier_wait, tile_number, tile_stride,
//   tiles_of, wait_for_grids, write_words

static_assert(STREAMED && SPLIT == 1 && W_LOADED == TILE_F * ROW, "as the launch was planned");

// The launch writes filters, or loads what the one before it writes. Else it loads what has been there before.
constexpr unsigned long long PREPARE = 1, JUST_PREPARED = 2;

DEVICE bool prepares(const Launch& launch) { return launch.w.words[1] == PREPARE; }

// Steps of a tile, and bytes of one.
constexpr int STREAMED_STEPS = FILTER_STEPS / STREAMED_TAPS;
constexpr unsigned STREAMED_BYTES = STREAMED_TAPS * W_BYTES;

// The channel at a place of a step's depth.
DEVICE int channel_at(int place) {
  constexpr int OF_PHASE = TILE_K / PHASES;
  if (!SLOTTED) return place;
  const int slot = (place / 16 * 4 + place % 2 * 2 + place / 8 % 2) * 4 + place % 8 / 2;
  return slot % OF_PHASE * PHASES + slot / OF_PHASE;
}

// A word of a filter's tap: these of its channels, if they are before the end.
template <class E> DEVICE unsigned filter_word(const E* from, int c, int second, int end) {
  return (c < end ? from[c * TAPS].bits : 0) | (unsigned)(second < end ? from[second * TAPS].bits : 0) << 16;
}
DEVICE unsigned filter_word(const float* from, int c, int, int end) {
  unsigned word = 0;
  if (c < end) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(from[c * TAPS]));
  return word;
}

// A thread writes a word of a filter's channels, in a plane of taps if that is few, or a line: such that what a warp reads lies together. Of a
// single tap it writes four, which a swizzle leaves side by side, and of few taps it reads several times as much before it writes, as it waits
// for the memory in between. Channels beyond the last are zeros. Behind the high parts of a tap's filters lie the low ones, where they have these.
DEVICE void prepare(const Launch& launch) {
  constexpr int SOME = TAPS_H * TAPS_W <= 9 ? TAPS_H * TAPS_W : TAPS_W, PARTS = TAPS / SOME;
  constexpr int OF_WORD = 4 / (int)sizeof(T), RUN = SOME == 1 ? 4 : 1, RUNS = TILE_K / OF_WORD / RUN;
  constexpr int TOGETHER = SOME * RUN < 8 ? 8 / (SOME * RUN) : 1;
  constexpr int PADDED_STEPS = (CHANNELS + TILE_K - 1) / TILE_K, ALL = COLUMNS * PADDED_STEPS * TILE_F * RUNS * PARTS;
  constexpr bool LOW = W_BYTES > W_LOADED;
  begin_grid();
  const int stride = gridDim.x * blockDim.x;
#pragma unroll 1
  for (int first_at = blockIdx.x * blockDim.x + threadIdx.x; first_at < ALL; first_at += TOGETHER * stride) {
    // All are read before the first is written, as the compiler does not know that these are other places.
    unsigned words[TOGETHER][SOME][RUN], low[TOGETHER][LOW ? SOME : 1][RUN];
#pragma unroll
    for (int t = 0; t < TOGETHER; t++) {
      const int at = first_at + t * stride;
      const int part = at % PARTS, run = at / PARTS % RUNS, row = at / PARTS / RUNS % TILE_F;
      const int of_column = at / PARTS / RUNS / TILE_F, column = of_column / PADDED_STEPS;
      const int first = of_column % PADDED_STEPS * TILE_K, filter = column % FILTER_TILES * TILE_F + row;
      const int end = at < ALL && filter < FILTERS ? CHANNELS : 0;
      const T* const from = (const T*)launch.args.op[0].p[0] +
                            (column / FILTER_TILES * FILTERS + filter) * launch.args.shape.w_k + part * SOME;
#pragma unroll
      for (int w = 0; w < RUN; w++) {
        const int place = (run * RUN + w) * OF_WORD;
        const int c = first + channel_at(place), second = first + channel_at(place + OF_WORD - 1);
#pragma unroll
        for (int i = 0; i < SOME; i++) {
          words[t][i][w] = filter_word(from + i, c, second, end);
          if (LOW) low[t][LOW ? i : 0][w] = c < end ? low_word_of(from + c * TAPS + i) : 0u;
        }
      }
    }
#pragma unroll
    for (int t = 0; t < TOGETHER; t++) {
      const int at = first_at + t * stride;
      const int part = at % PARTS, run = at / PARTS % RUNS, row = at / PARTS / RUNS % TILE_F;
      const int of_column = at / PARTS / RUNS / TILE_F, chunk = of_column % PADDED_STEPS,
                column = of_column / PADDED_STEPS;
      // What TMA's swizzle makes of an offset in rows of ROW bytes.
      const unsigned offset = row * ROW + run * RUN * 4, mask = ROW == 128 ? 7 : ROW == 64 ? 3 : 1;
      char* const to = (char*)launch.w.words[0] + (offset ^ (offset >> 7 & mask) << 4);
      if (at >= ALL) continue;
#pragma unroll
      for (int i = 0; i < SOME; i++) {
        // All taps of a plane come for some channels before others do, or a column of taps for all channels.
        const int line = part * (SOME / TAPS_W) + i / TAPS_W, tap = i % TAPS_W;
        const int of_tile = BY_PLANES ? ((line / TAPS_H * PADDED_STEPS + chunk) * TAPS_H + line % TAPS_H) * TAPS_W + tap
                                      : (tap * PADDED_STEPS + chunk) * TAPS_H + line;
        char* const written = to + (column * FILTER_STEPS + of_tile) * (long long)W_BYTES;
        write_words(written, words[t][i]);
        if (LOW) write_words(written + W_LOADED, low[t][LOW ? i : 0]);
      }
    }
  }
}

DEVICE void stream_filters(const Launch& launch, unsigned shared, const Barriers& barriers) {
  // Others were there before this launch, so no grid is waited for.
  if (launch.w.words[1] == JUST_PREPARED) wait_for_grids();
  const char* const first = (const char*)launch.w.words[0];
  PipelineState<FILTER_STAGES> pipe(0);
#pragma unroll 1
  for (int tile = tile_number(); tile < tiles_of(launch.args.shape); tile += tile_stride()) {
    const char* from = first + (long long)(tile % COLUMNS) * STREAMED_STEPS * STREAMED_BYTES;
#pragma unroll 1
    for (int step = 0; step < STREAMED_STEPS; step++, from += STREAMED_BYTES) {
      const unsigned full = barriers.filters_full(pipe.stage);
      mbarrier_wait(barriers.filters_empty(pipe.stage), pipe.phase ^ 1);
      mbarrier_expect_tx(full, STREAMED_BYTES);
      bulk_load(shared + W_AT + pipe.stage * STREAMED_BYTES, (const T*)from, STREAMED_BYTES, full);
      pipe.next();
    }
  }
}
