// Filters that TMA cannot load and that a block has no room for: one launch writes them to memory as the main loop wants them
// in shared memory, for every column of tiles the filters of each step one after the other, and later launches bring a step's
// filters by one bulk copy. A step has the taps of a column of taps, in TILE_K channels.
//
// needs macros: DEVICE
// needs constants: CHANNELS, COLUMNS, FILTERS, FILTER_STAGES, FILTER_STEPS, FILTER_TILES, RAW_STAGES, ROW, SPLIT, STREAMED, TAPS,
//   TAPS_H, TAPS_W, TILE_F, TILE_K, W_AT, W_BYTES
// needs sizes: w_k
// needs types: Barriers, Launch, PipelineState, T
// needs functions: bulk_load, mbarrier_expect_tx, mbarrier_wait, tile_number, tile_stride, tiles_of, wait_for_grids

static_assert(STREAMED && SPLIT == 1 && sizeof(T) == 2 && W_BYTES == TILE_F * ROW, "as the launch was planned");

// Steps of a tile, and bytes of one.
constexpr int STREAMED_TAPS = RAW_STAGES > 0 ? TAPS_W : TAPS_H, STREAMED_STEPS = FILTER_STEPS / STREAMED_TAPS;
constexpr unsigned STREAMED_BYTES = STREAMED_TAPS * W_BYTES;

// A thread writes two channels of a filter's tap at a time; those beyond the last are zeros.
DEVICE void prepare_filters(const Launch& launch) {
  constexpr int PAIRS = TILE_K / 2, PADDED_STEPS = (CHANNELS + TILE_K - 1) / TILE_K;
  char* const to = (char*)launch.w.words[0];
  wait_for_grids();
#pragma unroll 1
  for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < COLUMNS * FILTER_STEPS * TILE_F * PAIRS;
       at += gridDim.x * blockDim.x) {
    const int pair = at % PAIRS, row = at / PAIRS % TILE_F, number = at / PAIRS / TILE_F;
    const int inner = number % STREAMED_TAPS, step = number / STREAMED_TAPS % STREAMED_STEPS,
              column = number / STREAMED_TAPS / STREAMED_STEPS;
    // Steps are columns of taps, then channels; or planes of taps, channels, then lines of taps.
    const int lines = RAW_STAGES > 0 ? TAPS_H : 1, c = step / lines % PADDED_STEPS * TILE_K + pair * 2;
    const int outer = step / lines / PADDED_STEPS;
    const int tap = RAW_STAGES > 0 ? (outer * TAPS_H + step % TAPS_H) * TAPS_W + inner : inner * TAPS_W + outer;
    const int filter = column % FILTER_TILES * TILE_F + row;
    const T* const from = (const T*)launch.args.op[0].p[0] +
                          (column / FILTER_TILES * FILTERS + filter) * launch.args.shape.w_k + c * TAPS + tap;
    unsigned word = 0;
    if (filter < FILTERS && c < CHANNELS) word = from->bits;
    if (filter < FILTERS && c + 1 < CHANNELS) word |= (unsigned)from[TAPS].bits << 16;
    // What TMA's swizzle makes of an offset in rows of ROW bytes.
    const unsigned offset = row * ROW + pair * 4, mask = ROW == 128 ? 7 : ROW == 64 ? 3 : 1;
    *(unsigned*)(to + (long long)number * W_BYTES + (offset ^ (offset >> 7 & mask) << 4)) = word;
  }
}

// What is prepared was there before this launch, so no grid is waited for.
DEVICE void stream_filters(const Launch& launch, unsigned shared, const Barriers& barriers) {
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
