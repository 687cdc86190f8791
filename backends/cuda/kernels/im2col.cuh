// Rows are pixels, which the copy engine brings by its im2col mode, a tap and TILE_K channels at a time; columns
// are filters; results go along channels. One thread starts all copies, three warps read channels.

constexpr int CHANNEL_STEPS = (CHANNELS + TILE_K - 1) / TILE_K;
static_assert(STEPS == CHANNEL_STEPS * TAPS && FEEDERS == 1, "as the launch was planned");

// One thread: starts the copies of every step of every tile.
DEVICE void copy_operands(const Launch& launch, unsigned shared, const Barriers& barriers) {
  const Shape& s = launch.args.shape;
  prefetch_map(&launch.x);
  if (RESIDENT && tile_number() < tiles_of(s)) {
    const Column column = column_of(tile_number());
    barrier_expect(barriers.filters(), STEPS * W_BYTES);
    unsigned to = shared + W_AT;
#pragma unroll 1
    for (int c = 0; c < CHANNEL_STEPS; c++)
#pragma unroll 1
      for (int t = 0; t < TAPS; t++, to += W_BYTES)
        copy_filters(to, &launch.w, barriers.filters(), c * TILE_K, t % TAPS_W, t / TAPS_W % TAPS_H,
                     t / (TAPS_W * TAPS_H), column.group * FILTERS + column.filter);
  }
  Ring<STAGES> ring(0);
#pragma unroll 1
  for (int tile = tile_number(); tile < tiles_of(s); tile += tile_stride()) {
    // Steps of others, and of this block.
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
            const unsigned full = barriers.full(ring.at);
            barrier_wait(barriers.empty(ring.at), ring.parity ^ 1);
            // What the copy engine fills with zeros counts too.
            barrier_expect(full, RESIDENT ? X_BYTES : X_BYTES + W_BYTES);
            copy_pixels(shared + ring.at * X_BYTES, &launch.x, full, column.group * CHANNELS + c * TILE_K, w, h, d, n,
                        tw * DILATION_W, th * DILATION_H, td * DILATION_D);
            if (!RESIDENT) copy_filters(shared + W_AT + ring.at * W_BYTES, &launch.w, full, c * TILE_K, tw, th, td, k);
            ring.next();
          }
  }
}

DEVICE void feed(const Launch& launch, char* memory, const Barriers& barriers) {
  if (threadIdx.x >= 32) {
    Ring<BUFFERS> ring(0);
#pragma unroll 1
    for (int tile = tile_number(); tile < tiles_of(launch.args.shape); tile += tile_stride())
      feed_channels(launch.args, (Channel*)(memory + CHANNELS_AT), barriers, ring, tile, threadIdx.x - 32, 96);
  } else if (is_elected()) {
    copy_operands(launch, shared_address(memory), barriers);
  }
}

template <bool PLAIN>
DEVICE void finish_sums(Args args, const float (&sums)[BLOCKS][WIDTH / 2], float* part, const Channel* channels,
                        int tile) {
  if (PLAIN) make_plain(args);
  const Column column = column_of(tile);
  const int lane = threadIdx.x % 32, consumer = (threadIdx.x / 128 - FEEDERS) % CONSUMERS;
  const int first_pixel = tile / COLUMNS * TILE_P + consumer * ROWS + threadIdx.x / 32 % 4 * 16;
  const unsigned to = part_of_lane(part);
  const float* from = part + part_at(lane / 8, lane % 8 * 8);
#pragma unroll 1
  for (int along = 0; along < PARTS_ALONG; along++) {
    const int f = along * PART + lane % 8 * 8;
    Channel channel[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (f + i < TILE_F) channel[i] = channels[f + i];
#pragma unroll 1
    for (int down = 0; down < PARTS_DOWN; down++) {
      __syncwarp();
      hand_over<0>(sums, to, along * PARTS_DOWN + down);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const int pixel = first_pixel + down / 2 * 64 + down % 2 * 8 + lane / 8 + i * 4;
        const Vector<float, 4> low = *(const Vector<float, 4>*)(from + i * 4 * PITCH);
        const Vector<float, 4> high = *(const Vector<float, 4>*)(from + i * 4 * PITCH + HALF);
        float v[8];
#pragma unroll
        for (int e = 0; e < 4; e++) v[e] = low.at[e], v[4 + e] = high.at[e];
        if (pixel >= args.shape.pixels) continue;
        const Place at = place_of(args.shape, pixel, column.group * FILTERS + column.filter + f);
#pragma unroll
        for (int e = 0; e < 8; e += Y_VECTOR) {
          if (f + e >= TILE_F || column.filter + f + e >= FILTERS) break;
          Place here = at;
          here.y += e;
          here.k += e;
          finish_vector<Y_VECTOR, true>(args, channel + e, v + e, here);
        }
      }
    }
  }
}
