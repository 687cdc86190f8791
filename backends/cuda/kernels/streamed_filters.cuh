// Filters that TMA cannot load and that a block has no room for: one launch writes them to memory as the main loop wants them
// in shared memory, for every column of tiles the filters of each step one after the other, and later launches, the next or many,
// bring a step's filters by one bulk copy. A step has the taps of a column of taps, in TILE_K channels.
//
// needs macros: DEVICE
// needs constants: CHANNELS, COLUMNS, FILTERS, FILTER_STAGES, FILTER_STEPS, FILTER_TILES, JUST_PREPARED, RAW_STAGES,
//   ROW, SPLIT, STREAMED, TAPS, TAPS_H, TAPS_W, TILE_F, TILE_K, W_AT, W_BYTES
// needs sizes: w_k
// needs types: Barriers, Launch, PipelineState, T
// needs functions: begin_grid, bulk_load, mbarrier_expect_tx, mbarrier_wait, tile_number, tile_stride, tiles_of,
//   wait_for_grids

static_assert(STREAMED && SPLIT == 1 && sizeof(T) == 2 && W_BYTES == TILE_F * ROW, "as the launch was planned");

// Steps of a tile, and bytes of one.
constexpr int STREAMED_TAPS = RAW_STAGES > 0 ? TAPS_W : TAPS_H, STREAMED_STEPS = FILTER_STEPS / STREAMED_TAPS;
constexpr unsigned STREAMED_BYTES = STREAMED_TAPS * W_BYTES;

// A thread writes two channels of a filter, in a plane of taps if that is few, or a line: such that what a warp reads lies together.
// Channels beyond the last are zeros.
DEVICE void prepare_filters(const Launch& launch) {
  constexpr int SOME = TAPS_H * TAPS_W <= 9 ? TAPS_H * TAPS_W : TAPS_W, PARTS = TAPS / SOME;
  constexpr int PAIRS = TILE_K / 2, PADDED_STEPS = (CHANNELS + TILE_K - 1) / TILE_K;
  begin_grid();
#pragma unroll 1
  for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < COLUMNS * PADDED_STEPS * TILE_F * PAIRS * PARTS;
       at += gridDim.x * blockDim.x) {
    const int part = at % PARTS, pair = at / PARTS % PAIRS, row = at / PARTS / PAIRS % TILE_F;
    const int of_column = at / PARTS / PAIRS / TILE_F, chunk = of_column % PADDED_STEPS,
              column = of_column / PADDED_STEPS;
    const int c = chunk * TILE_K + pair * 2, filter = column % FILTER_TILES * TILE_F + row;
    const T* const from = (const T*)launch.args.op[0].p[0] +
                          (column / FILTER_TILES * FILTERS + filter) * launch.args.shape.w_k + c * TAPS + part * SOME;
    const bool first = filter < FILTERS && c < CHANNELS, second = filter < FILTERS && c + 1 < CHANNELS;
    // All are read before the first is written, as the compiler does not know that these are other places.
    unsigned words[SOME];
#pragma unroll
    for (int i = 0; i < SOME; i++)
      words[i] = (first ? from[i].bits : 0) | (unsigned)(second ? from[TAPS + i].bits : 0) << 16;
    // What TMA's swizzle makes of an offset in rows of ROW bytes.
    const unsigned offset = row * ROW + pair * 4, mask = ROW == 128 ? 7 : ROW == 64 ? 3 : 1;
    char* const to = (char*)launch.w.words[0] + (offset ^ (offset >> 7 & mask) << 4);
#pragma unroll
    for (int i = 0; i < SOME; i++) {
      // Steps are columns of taps, then channels; or planes of taps, channels, then lines of taps.
      const int line = part * (SOME / TAPS_W) + i / TAPS_W, tap = i % TAPS_W;
      const int step =
          RAW_STAGES > 0 ? (line / TAPS_H * PADDED_STEPS + chunk) * TAPS_H + line % TAPS_H : tap * PADDED_STEPS + chunk;
      const int number = (column * STREAMED_STEPS + step) * STREAMED_TAPS + (RAW_STAGES > 0 ? tap : line);
      *(unsigned*)(to + (long long)number * W_BYTES) = words[i];
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
