// Load::Transposed, for convolutions without strides of images whose lines start at multiples of 16 bytes: TMA brings a rectangle
// of a plane as it lies, with what its taps see besides, and two warps write it with channels innermost. So columns of the product
// are pixels that lie as in NHWC, and a tap's are the same rows from another address on: what came once serves a plane of taps.
//
// A tile has LINES lines of RECTANGLE columns of an output's plane, and LINE columns of each line of a stage.
//
// needs macros: DEVICE
// needs constants: BOXES, CHANNELS, CHANNELS_AT, CHANNEL_PRODUCERS, CHANNEL_STAGES, LINE, LINES, LOADED_P, PAD_D, PAD_H, PAD_W,
//   PRODUCERS, RAW_AT, RAW_BYTES, RAW_STAGES, RECTANGLE, ROW, STAGES, STEPS, STREAMED, TAPS_D, TAPS_H, TAPS_W, TILE_K, X_BYTES
// needs sizes: out_h, out_plane, out_w
// needs types: Barriers, Channel, Launch, PipelineState, Rectangle, Shape
// needs functions: column_of, is_elected, load_channels, mbarrier_arrive, mbarrier_expect_tx, mbarrier_wait, rectangle_of,
//   shared_address, stream_filters, tile_number, tile_stride, tiles_of, tma_load_box, tma_prefetch_map, wait_for_grids, wait_for_image

constexpr int CHANNEL_STEPS = (CHANNELS + TILE_K - 1) / TILE_K, LINES_IN = LINES + TAPS_H - 1;
static_assert(STEPS == CHANNEL_STEPS * TAPS_D && STREAMED && PRODUCERS == 1 && TILE_K == 32 && ROW == 64 &&
                  LOADED_P == LINES_IN * LINE && CHANNEL_PRODUCERS == 64 && LINE >= RECTANGLE + TAPS_W - 1,
              "as the launch was planned");
// Columns of a box, bytes of it in shared memory, by lines, channels and columns, and columns that come before the first tap's, as
// boxes start at multiples of 16 bytes.
constexpr int BOX = 64, SHIFT = (8 - PAD_W % 8) % 8;
constexpr unsigned BOX_LINE = TILE_K * BOX * 2, BOX_BYTES = LINES_IN * BOX_LINE;
static_assert(RAW_BYTES == BOXES * BOX_BYTES && BOXES * BOX >= SHIFT + LINE, "a stage has what a tile sees");

// Issues the loads of every tile. One thread calls it.
DEVICE void load_operands(const Launch& launch, unsigned shared, const Barriers& barriers) {
  const Shape& s = launch.args.shape;
  tma_prefetch_map(&launch.x);
  wait_for_image(launch);
  const int planes = s.out_plane / (s.out_h * s.out_w);
  PipelineState<RAW_STAGES> pipe(0);
#pragma unroll 1
  for (int tile = tile_number(); tile < tiles_of(s); tile += tile_stride()) {
    const Rectangle at = rectangle_of(s, tile);
    const int n = at.plane / planes, d = at.plane % planes - PAD_D, c = column_of(tile).group * CHANNELS;
#pragma unroll 1
    for (int step = 0; step < STEPS; step++) {
      const unsigned full = barriers.raw_full(pipe.stage), to = shared + RAW_AT + pipe.stage * RAW_BYTES;
      mbarrier_wait(barriers.raw_empty(pipe.stage), pipe.phase ^ 1);
      mbarrier_expect_tx(full, RAW_BYTES);
#pragma unroll
      for (int i = 0; i < BOXES; i++)
        tma_load_box(to + i * BOX_BYTES, &launch.x, full, at.w - PAD_W - SHIFT + i * BOX,
                     c + step % CHANNEL_STEPS * TILE_K, at.h - PAD_H, d + step / CHANNEL_STEPS, n);
      pipe.next();
    }
  }
}

// Writes a stage with channels innermost, eight columns of a line at a time, in all channels. Each of two warps takes every other
// eight of a line, of which some are all read before the first is written: a lane then has four pairs of channels of a column of
// each. Their places in a line are constants, but for which of the warps it is.
DEVICE void transpose(unsigned from, unsigned to) {
  constexpr int WARPS = CHANNEL_PRODUCERS / 32, EIGHTS = (SHIFT + LINE + 7) / 8, MOST = (EIGHTS + 1) / 2, SOME = 4;
  static_assert(WARPS == 2 && LINE % 8 == 0, "a line's columns are swizzled as the first's");
  const int lane = threadIdx.x % 32, column = lane / 4 - SHIFT;
  const unsigned warp = threadIdx.x / 32 % WARPS;
  const unsigned row = from + lane * (BOX * 2) + (lane % 8 << 4), swizzle = (column >> 1 & 3) << 4;
  const unsigned pixel = to + column * ROW + lane % 4 * 4;
#pragma unroll 1
  for (int line = 0; line < LINES_IN; line++) {
    // Of an odd number the warps take one more in turn.
    const unsigned odd = EIGHTS % 2 == 0 ? warp : (warp + line) % 2;
    const unsigned rows = row + line * BOX_LINE ^ odd << 4, pixels = pixel + (line * LINE + odd * 8) * ROW;
#pragma unroll
    for (int first = 0; first < MOST; first += SOME) {
      unsigned v[SOME][4];
#pragma unroll
      for (int i = 0; i < SOME; i++) {
        const int eight = (first + i) * 2;
        const unsigned at = eight + odd < EIGHTS ? (rows ^ eight % 8 << 4) + eight / 8 * BOX_BYTES : rows;
        if (first + i < MOST)
          asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                       : "=r"(v[i][0]), "=r"(v[i][1]), "=r"(v[i][2]), "=r"(v[i][3])
                       : "r"(at)
                       : "memory");
      }
#pragma unroll
      for (int i = 0; i < SOME; i++) {
        const int eight = (first + i) * 2;
        // Columns that a line has not are the first eight's or the last one's.
        const bool inside =
            (eight > 0 || odd > 0 || column >= 0) && (eight + 2 < EIGHTS || (int)(eight + odd) * 8 + column < LINE);
#pragma unroll
        for (int j = 0; j < 4; j++)
          if (first + i < MOST && inside)
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(pixels + (j << 4 ^ swizzle) + eight * (8 * ROW)), "r"(v[i][j])
                         : "memory");
      }
    }
  }
}

DEVICE void produce(const Launch& launch, char* memory, const Barriers& barriers) {
  const unsigned shared = shared_address(memory);
  if (threadIdx.x < 64) {
    if (!is_elected()) return;
    if (threadIdx.x < 32) load_operands(launch, shared, barriers);
    else stream_filters(launch, shared, barriers);
    return;
  }
  wait_for_grids();
  PipelineState<CHANNEL_STAGES> channel_pipe(0);
  PipelineState<RAW_STAGES> raw(0);
  PipelineState<STAGES> pipe(0);
#pragma unroll 1
  for (int tile = tile_number(); tile < tiles_of(launch.args.shape); tile += tile_stride()) {
    load_channels(launch.args, (Channel*)(memory + CHANNELS_AT), barriers, channel_pipe, tile, threadIdx.x - 64,
                  CHANNEL_PRODUCERS);
#pragma unroll 1
    for (int step = 0; step < STEPS; step++) {
      mbarrier_wait(barriers.raw_full(raw.stage), raw.phase);
      mbarrier_wait(barriers.empty(pipe.stage), pipe.phase ^ 1);
      transpose(shared + RAW_AT + raw.stage * RAW_BYTES, shared + pipe.stage * X_BYTES);
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncwarp();
      if (threadIdx.x % 32 == 0)
        mbarrier_arrive(barriers.full(pipe.stage)), mbarrier_arrive(barriers.raw_empty(raw.stage));
      raw.next();
      pipe.next();
    }
  }
}
