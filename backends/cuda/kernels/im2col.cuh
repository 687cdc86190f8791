// Load::Tma: rows of the product are pixels, which TMA loads in its im2col mode, one tap and TILE_K channels at a time;
// columns are filters; results are written along channels. One thread of the producer warpgroup issues all TMA loads, and
// its other three warps load the parameters of channels.
//
// needs macros: DEVICE
// needs constants: ATOMS, CHANNELS, CHANNELS_AT, CHANNEL_STAGES, COLUMNS, COOPERATIVE, DILATION_D, DILATION_H,
//   DILATION_W, FILTERS, HALF, PAD_D, PAD_H, PAD_W, PART, PARTS_ALONG, PARTS_DOWN, PART_ROWS, PITCH, PRODUCERS,
//   RESIDENT, ROWS, SPLIT, STAGES, STEPS, STRIDE_D, STRIDE_H, STRIDE_W, TAPS, TAPS_D, TAPS_H, TAPS_W, TILE_F, TILE_K,
//   TILE_P, WIDTH, W_AT, W_BYTES, X_BYTES, Y_VECTOR
// needs sizes: out_h, out_plane, out_w, pixels
// needs types: Args, Barriers, Channel, Column, Coord, Launch, PipelineState, Residuals, Shape, T, Vector
// needs functions: affine_columns, chain_vector, column_of, coord_of, each_residual, first_step, is_elected,
//   load_channels, make_plain, mbarrier_expect_tx, mbarrier_wait, part_address, part_at, prefetch_l2, residuals_of,
//   shared_address, stage_accumulators, step_count, tile_number, tile_stride, tiles_of, tma_load_filters,
//   tma_load_im2col, tma_prefetch_map, write_vector

constexpr int CHANNEL_STEPS = (CHANNELS + TILE_K - 1) / TILE_K;
static_assert(STEPS == CHANNEL_STEPS * TAPS && PRODUCERS == 1, "as the launch was planned");

// Issues the loads of every step of every tile. One thread calls it.
DEVICE void load_operands(const Launch& launch, unsigned shared, const Barriers& barriers) {
  const Shape& s = launch.args.shape;
  tma_prefetch_map(&launch.x);
  if (RESIDENT && tile_number() < tiles_of(s)) {
    const Column column = column_of(tile_number());
    mbarrier_expect_tx(barriers.filters(), STEPS * W_BYTES);
    unsigned to = shared + W_AT;
#pragma unroll 1
    for (int c = 0; c < CHANNEL_STEPS; c++)
#pragma unroll 1
      for (int t = 0; t < TAPS; t++, to += W_BYTES)
        tma_load_filters(to, &launch.w, barriers.filters(), c * TILE_K, t % TAPS_W, t / TAPS_W % TAPS_H,
                         t / (TAPS_W * TAPS_H), column.group * FILTERS + column.filter);
  }
  PipelineState<STAGES> pipe(0);
#pragma unroll 1
  for (int tile = tile_number(); tile < tiles_of(s); tile += tile_stride()) {
    // The steps of the tile before this block's share, and the steps of its share.
    int before = first_step<STEPS>(), steps = step_count<STEPS>();
    const Column column = column_of(tile);
    const int k = column.group * FILTERS + column.filter, first = tile / COLUMNS * TILE_P;
    const int n = first / s.out_plane, p = first % s.out_plane, row = p / s.out_w;
    const int w = p % s.out_w * STRIDE_W - PAD_W, h = row % s.out_h * STRIDE_H - PAD_H;
    const int d = row / s.out_h * STRIDE_D - PAD_D;
#pragma unroll 1
    for (int c = 0; c < CHANNEL_STEPS; c++)
#pragma unroll 1
      for (int td = 0; td < TAPS_D; td++)
#pragma unroll 1
        for (int th = 0; th < TAPS_H; th++)
#pragma unroll 1
          for (int tw = 0; tw < TAPS_W; tw++) {
            if (SPLIT > 1 && before-- > 0) continue;
            if (SPLIT > 1 && steps-- <= 0) continue;
            const unsigned full = barriers.full(pipe.stage);
            mbarrier_wait(barriers.empty(pipe.stage), pipe.phase ^ 1);
            // The bytes that TMA fills with zeros count too.
            mbarrier_expect_tx(full, RESIDENT ? X_BYTES : X_BYTES + W_BYTES);
            tma_load_im2col(shared + pipe.stage * X_BYTES, &launch.x, full, column.group * CHANNELS + c * TILE_K, w, h,
                            d, n, tw * DILATION_W, th * DILATION_H, td * DILATION_D);
            if (!RESIDENT)
              tma_load_filters(shared + W_AT + pipe.stage * W_BYTES, &launch.w, full, c * TILE_K, tw, th, td, k);
            pipe.next();
          }
  }
}

// Whether a thread has the residuals of a part on their way while it finishes the part before.
constexpr bool RESIDUALS_AHEAD = sizeof(Residuals<1>) > 1 && Y_VECTOR * sizeof(T) >= 8;

// One pixel's channels of the tile a thread.
DEVICE void prefetch_residuals(const Args& args, int tile, int thread, int count) {
  each_residual(args, [&](const T* residual) {
    const Column column = column_of(tile);
    const int left = FILTERS - column.filter;
#pragma unroll 1
    for (int i = thread; i < TILE_P; i += count) {
      const int pixel = tile / COLUMNS * TILE_P + i;
      if (pixel >= args.shape.pixels) break;
      prefetch_l2(residual + coord_of(args.shape, pixel, column.group * FILTERS + column.filter).y,
                  left < TILE_F ? left : TILE_F);
    }
  });
}

DEVICE void produce(const Launch& launch, char* memory, const Barriers& barriers) {
  if (threadIdx.x >= 32) {
    PipelineState<CHANNEL_STAGES> pipe(0);
#pragma unroll 1
    for (int tile = tile_number(); tile < tiles_of(launch.args.shape); tile += tile_stride())
      load_channels(launch.args, (Channel*)(memory + CHANNELS_AT), barriers, pipe, tile, threadIdx.x - 32, 96);
  } else if (is_elected()) {
    load_operands(launch, shared_address(memory), barriers);
  }
}

// A lane finishes eight channels of PIXELS pixels in each part, by vectors. The lanes of a warp have PIXELS_AT_ONCE pixels.
constexpr int VECTORS = 8 / Y_VECTOR, LANES_ALONG = PART / 8;
constexpr int PIXELS_AT_ONCE = 32 / LANES_ALONG, PIXELS = PART_ROWS / PIXELS_AT_ONCE;
static_assert(VECTORS * Y_VECTOR == 8 && PIXELS * PIXELS_AT_ONCE == PART_ROWS, "whole vectors and pixels");
// Which of them is a lane's. Eight lanes read shared memory at a time: where they have two rows of a part, these are every
// other one, which lie in different banks.
DEVICE int lane_pixel(int lane) {
  const int pixel = lane / LANES_ALONG;
  return PART == 32 ? pixel / 4 * 4 + pixel % 2 * 2 + pixel / 2 % 2 : pixel;
}

// Reads the residuals of eight channels of a pixel.
DEVICE void load_residuals(const Args& args, Residuals<Y_VECTOR> (&residuals)[VECTORS], const Column& column, int f,
                           int pixel) {
  if (pixel >= args.shape.pixels) return;
  const Coord at = coord_of(args.shape, pixel, column.group * FILTERS + column.filter + f);
#pragma unroll
  for (int e = 0; e < 8; e += Y_VECTOR) {
    if (f + e >= TILE_F || column.filter + f + e >= FILTERS) break;
    residuals[e / Y_VECTOR] = residuals_of<Y_VECTOR>(args, at.y + e);
  }
}

template <bool PLAIN>
DEVICE void epilogue(Args args, float (&acc)[ATOMS][WIDTH / 2], float* part, const Channel* channels, int tile) {
  if (PLAIN) make_plain(args);
  affine_columns(args, acc, channels);
  const Column column = column_of(tile);
  const int lane = threadIdx.x % 32, consumer = (threadIdx.x / 128 - PRODUCERS) % COOPERATIVE;
  const int first_pixel = tile / COLUMNS * TILE_P + consumer * ROWS + threadIdx.x / 32 % 4 * 16;
  const unsigned to = part_address(part);
  const float* from = part + part_at(lane_pixel(lane), lane % LANES_ALONG * 8);
  const auto pixel_of = [&](int down, int i) {
    const int below = down * PART_ROWS;
    return first_pixel + below / 16 * 64 + below % 16 + lane_pixel(lane) + i * PIXELS_AT_ONCE;
  };
  Residuals<Y_VECTOR> ahead[PIXELS][VECTORS];
  if constexpr (RESIDUALS_AHEAD)
#pragma unroll
    for (int i = 0; i < PIXELS; i++) load_residuals(args, ahead[i], column, lane % LANES_ALONG * 8, pixel_of(0, i));
#pragma unroll 1
  for (int along = 0; along < PARTS_ALONG; along++) {
    const int f = along * PART + lane % LANES_ALONG * 8;
    Channel channel[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (f + i < TILE_F) channel[i] = channels[f + i];
#pragma unroll 1
    for (int down = 0; down < PARTS_DOWN; down++) {
      __syncwarp();
      stage_accumulators<0>(acc, to, along * PARTS_DOWN + down);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < PIXELS; i++) {
        const int pixel = pixel_of(down, i);
        const Vector<float, 4> low = *(const Vector<float, 4>*)(from + i * PIXELS_AT_ONCE * PITCH);
        const Vector<float, 4> high = *(const Vector<float, 4>*)(from + i * PIXELS_AT_ONCE * PITCH + HALF);
        float v[8];
#pragma unroll
        for (int e = 0; e < 4; e++) v[e] = low.at[e], v[4 + e] = high.at[e];
        if (pixel < args.shape.pixels) {
          const Coord at = coord_of(args.shape, pixel, column.group * FILTERS + column.filter + f);
#pragma unroll
          for (int e = 0; e < 8; e += Y_VECTOR) {
            if (f + e >= TILE_F || column.filter + f + e >= FILTERS) break;
            Coord here = at;
            here.y += e;
            here.k += e;
            float out[Y_VECTOR];
            if constexpr (RESIDUALS_AHEAD)
              chain_vector<Y_VECTOR, true>(args, channel + e, ahead[i][e / Y_VECTOR], v + e, here, out);
            else
              chain_vector<Y_VECTOR, true>(args, channel + e, residuals_of<Y_VECTOR>(args, here.y), v + e, here, out);
            write_vector<Y_VECTOR>(args, here.y, out);
          }
        }
        if constexpr (RESIDUALS_AHEAD) {
          if (down + 1 < PARTS_DOWN) load_residuals(args, ahead[i], column, f, pixel_of(down + 1, i));
          else if (along + 1 < PARTS_ALONG) load_residuals(args, ahead[i], column, f + PART, pixel_of(0, i));
        }
      }
    }
  }
}
