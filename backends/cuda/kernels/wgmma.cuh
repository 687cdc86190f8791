// Convolution on Hopper's tensor cores: an implicit matrix product whose operands the copy engine brings,
// pixels by its im2col mode. A block has one group of four warps that feeds (one thread starts copies, the
// other warps read what the operators need of channels) and TEAMS teams of CONSUMERS groups that multiply and
// finish, each group 64 * BLOCKS pixels. Blocks stay; their tiles go to the teams by turns. So copies run on
// while a tile is finished, and while one team finishes another multiplies. RESIDENT: a block's filters never
// change and are copied once.

struct Launch {
  TensorMap x, w;
  Args args;
};

constexpr int TILE_P = CONSUMERS * BLOCKS * 64;
constexpr int TAPS = TAPS_D * TAPS_H * TAPS_W;
constexpr int CHANNEL_STEPS = (CHANNELS + TILE_K - 1) / TILE_K;
constexpr int STEPS = CHANNEL_STEPS * TAPS;
constexpr int FILTER_TILES = (FILTERS + TILE_F - 1) / TILE_F;
constexpr int COLUMNS = GROUPS * FILTER_TILES;
constexpr unsigned X_BYTES = TILE_P * ROW, W_BYTES = TILE_F * ROW;

// A warp hands its sums over in parts of 8 pixels times 64 filters. A row of a part: for every 8 filters the
// first four, and behind them for every 8 filters the other four; no access meets a bank twice.
constexpr int PART_F = 64, PARTS_F = (TILE_F + PART_F - 1) / PART_F, PARTS_P = 2 * BLOCKS;
constexpr int PITCH = 72, HALF = 36;

// Shared memory, which starts at a multiple of 1024 bytes.
constexpr unsigned W_AT = STAGES * X_BYTES;
constexpr unsigned SUMS_AT = W_AT + (RESIDENT ? STEPS : STAGES) * W_BYTES;
constexpr unsigned CHANNELS_AT = SUMS_AT + TEAMS * CONSUMERS * 4 * 8 * PITCH * 4;
constexpr unsigned BARRIERS_AT = (CHANNELS_AT + BUFFERS * TILE_F * CHANNEL_VALUES * 4 + 7) / 8 * 8;
static_assert(CHANNEL_VALUES == 0 || sizeof(Channel) == CHANNEL_VALUES * 4, "a channel's numbers are counted");
static_assert(BARRIERS_AT + (2 * STAGES + 2 * BUFFERS + TEAMS + 1) * 8 + 1024 <= SHARED, "shared memory is large enough");

struct Barriers {
  unsigned first;
  DEVICE unsigned full(int stage) const { return first + stage * 8; }
  DEVICE unsigned empty(int stage) const { return first + (STAGES + stage) * 8; }
  DEVICE unsigned channels_full(int buffer) const { return first + (2 * STAGES + buffer) * 8; }
  DEVICE unsigned channels_empty(int buffer) const { return first + (2 * STAGES + BUFFERS + buffer) * 8; }
  DEVICE unsigned turn(int team) const { return first + (2 * STAGES + 2 * BUFFERS + team) * 8; }
  DEVICE unsigned filters() const { return turn(TEAMS); }
};

// A place in a ring of N buffers, and the parity of the lap, `count` buffers after the first.
template <int N> struct Ring {
  int at;
  unsigned parity;
  DEVICE explicit Ring(unsigned count) : at(count % N), parity(count / N & 1) {}
  DEVICE void next() {
    if (++at == N) at = 0, parity ^= 1;
  }
};

// Column of a tile: its group and the first of its filters in the group.
struct Column {
  int group, filter;
};
DEVICE Column column_of(int tile) {
  const int column = tile % COLUMNS;
  return {column / FILTER_TILES, column % FILTER_TILES * TILE_F};
}
DEVICE int tiles_of(const Shape& s) { return (s.pixels + TILE_P - 1) / TILE_P * COLUMNS; }

// One thread: starts the copies of every step of every tile.
DEVICE void feed(const Launch& launch, unsigned shared, const Barriers& barriers) {
  const Shape& s = launch.args.shape;
  if (RESIDENT && blockIdx.x < tiles_of(s)) {
    const Column column = column_of(blockIdx.x);
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
  for (int tile = blockIdx.x; tile < tiles_of(s); tile += gridDim.x) {
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

// 96 threads: what the operators need of the channels of every tile.
DEVICE void feed_channels(const Args& args, Channel* channels, const Barriers& barriers) {
  Ring<BUFFERS> ring(0);
#pragma unroll 1
  for (int tile = blockIdx.x; tile < tiles_of(args.shape); tile += gridDim.x) {
    const Column column = column_of(tile);
    barrier_wait(barriers.channels_empty(ring.at), ring.parity ^ 1);
#pragma unroll 1
    for (int f = threadIdx.x - 32; f < TILE_F && column.filter + f < FILTERS; f += 96)
      channels[ring.at * TILE_F + f] = channel_of(args, column.group * FILTERS + column.filter + f);
    barrier_arrive(barriers.channels_full(ring.at));
    ring.next();
  }
}

// Adds the products of every step of a block's tile number `count` to the sums. A team waits until the team
// before it has seen its last operands: a barrier that is two laps behind looks like one that is done.
DEVICE void multiply(float (&sums)[BLOCKS][TILE_F / 2], unsigned shared, const Barriers& barriers, unsigned count) {
  const int consumer = (threadIdx.x / 128 - 1) % CONSUMERS, lane = threadIdx.x % 32, team = count % TEAMS;
  Ring<STAGES> ring(count * STEPS);
  if (TEAMS > 1) barrier_wait(barriers.turn(team), (count / TEAMS & 1) ^ (team == 0));
  int last = 0;
#pragma unroll 1
  for (int step = 0; step < STEPS; step++) {
    barrier_wait(barriers.full(ring.at), ring.parity);
    if (TEAMS > 1 && step == STEPS - 1 && lane == 0) barrier_arrive(barriers.turn((team + 1) % TEAMS));
    const auto x = operand(shared + ring.at * X_BYTES + consumer * (BLOCKS * 64 * ROW));
    const auto w = operand(shared + W_AT + (RESIDENT ? step : ring.at) * W_BYTES);
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) pin(sums[block]);
    products_fence();
#pragma unroll
    for (int k = 0; k < TILE_K / 16; k++)
#pragma unroll
      for (int block = 0; block < BLOCKS; block++)
        products(sums[block], x + block * (64 * ROW >> 4) + k * 2, w + k * 2, step + k != 0, T());
    products_commit();
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) pin(sums[block]);
    // The products of the step before have read its operands.
    products_wait<1>();
    if (step > 0 && lane == 0) barrier_arrive(barriers.empty(last));
    last = ring.at;
    ring.next();
  }
  products_wait<0>();
#pragma unroll
  for (int block = 0; block < BLOCKS; block++) pin(sums[block]);
  if (lane == 0) barrier_arrive(barriers.empty(last));
}

// Stores this thread's sums of a part. Which registers these are must be known to the compiler: it finds the
// part by comparing, and the tag keeps it from making one store with a computed index of them all.
template <int PART> DEVICE void hand_over(const float (&sums)[BLOCKS][TILE_F / 2], unsigned to, int part) {
  if constexpr (PART < PARTS_F * PARTS_P) {
    if (part != PART) return hand_over<PART + 1>(sums, to, part);
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const int at = PART / PARTS_P * 32 + j * 4 + PART % 2 * 2;
      if (at < TILE_F / 2)
        asm volatile("st.shared.v2.f32 [%0], {%1, %2}; // part %3" ::"r"(to + j * 16),
                     "f"(sums[PART % PARTS_P / 2][at]), "f"(sums[PART % PARTS_P / 2][at + 1]), "n"(PART) : "memory");
    }
  }
}

// Whether results are scaled and blended by nothing, as usual.
DEVICE bool is_plain(const Args& args) {
  bool plain = args.beta == 0.f;
#pragma unroll
  for (int i = 0; i < OPS; i++) plain = plain && args.op[i].alpha == 1.f;
  return plain;
}

// Takes the warp's sums of a tile through the operators and writes them, a part at a time.
template <bool PLAIN>
DEVICE void finish_sums(Args args, const float (&sums)[BLOCKS][TILE_F / 2], float* part, const Channel* channels,
                        int tile) {
  if (PLAIN) {
    args.beta = 0.f;
#pragma unroll
    for (int i = 0; i < OPS; i++) args.op[i].alpha = 1.f;
  }
  const Column column = column_of(tile);
  const int lane = threadIdx.x % 32;
  const int consumer = (threadIdx.x / 128 - 1) % CONSUMERS;
  const int first_pixel = tile / COLUMNS * TILE_P + consumer * (BLOCKS * 64) + threadIdx.x / 32 % 4 * 16;
  const unsigned to = shared_address(part + lane / 4 * PITCH + lane % 4 / 2 * HALF + lane % 2 * 2);
  const float* from = part + lane / 8 * PITCH + lane % 8 * 4;
#pragma unroll 1
  for (int part_f = 0; part_f < PARTS_F; part_f++) {
    const int f = part_f * PART_F + lane % 8 * 8;
    Channel channel[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (f + i < TILE_F) channel[i] = channels[f + i];
#pragma unroll 1
    for (int part_p = 0; part_p < PARTS_P; part_p++) {
      __syncwarp();
      hand_over<0>(sums, to, part_f * PARTS_P + part_p);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const int pixel = first_pixel + part_p / 2 * 64 + part_p % 2 * 8 + lane / 8 + i * 4;
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

extern "C" __global__ void __launch_bounds__((TEAMS * CONSUMERS + 1) * 128, PER_UNIT)
fuseplan_kernel(const __grid_constant__ Launch launch) {
  DYNAMIC_SHARED(char, memory);
  const Args& args = launch.args;
  const unsigned start = shared_address(memory), shared = (start + 1023) / 1024 * 1024;
  Channel* channels = (Channel*)(memory + (shared - start) + CHANNELS_AT);
  const Barriers barriers = {shared + BARRIERS_AT};
  if (threadIdx.x == 0) {
    prefetch_map(&launch.x);
    prefetch_map(&launch.w);
    for (int i = 0; i < STAGES; i++) barrier_init(barriers.full(i), 1), barrier_init(barriers.empty(i), CONSUMERS * 4);
    for (int i = 0; i < BUFFERS; i++)
      barrier_init(barriers.channels_full(i), 96), barrier_init(barriers.channels_empty(i), CONSUMERS * 4);
    for (int i = 0; i < TEAMS; i++) barrier_init(barriers.turn(i), CONSUMERS * 4);
    barrier_init(barriers.filters(), 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(FEED_REGISTERS));
    if (threadIdx.x >= 32) feed_channels(args, channels, barriers);
    else if (is_elected()) feed(launch, shared, barriers);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(CONSUMER_REGISTERS));
    float* part = (float*)(memory + (shared - start) + SUMS_AT) + (threadIdx.x / 32 - 4) * 8 * PITCH;
    float sums[BLOCKS][TILE_F / 2];
    if (RESIDENT && blockIdx.x < tiles_of(args.shape)) barrier_wait(barriers.filters(), 0);
    const bool plain = is_plain(args);
    unsigned count = (threadIdx.x / 128 - 1) / CONSUMERS;
#pragma unroll 1
    for (int tile = blockIdx.x + count * gridDim.x; tile < tiles_of(args.shape); tile += TEAMS * gridDim.x) {
      multiply(sums, shared, barriers, count);
      const Ring<BUFFERS> buffer(count);
      barrier_wait(barriers.channels_full(buffer.at), buffer.parity);
      if (plain) finish_sums<true>(args, sums, part, channels + buffer.at * TILE_F, tile);
      else finish_sums<false>(args, sums, part, channels + buffer.at * TILE_F, tile);
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(barriers.channels_empty(buffer.at));
      count += TEAMS;
    }
  }
}
