// Convolution on Hopper's tensor cores: an implicit matrix product. A block has FEEDERS groups of four warps
// that bring operands and what the operators need of channels, and TEAMS teams of CONSUMERS groups that multiply
// and finish, each group 64 * BLOCKS rows of the product. Rows are pixels, or filters (PIXELS_ARE_ROWS), columns
// the other. Blocks stay; their tiles go to the teams by turns. So operands are brought while a tile is finished,
// and while one team finishes another multiplies. RESIDENT: a block's filters never change and are brought once.
// The text behind this one says how operands come (`feed`) and how a tile's sums are written (`finish_sums`).

struct Launch {
  TensorMap x, w;
  Args args;
};

constexpr int TAPS = TAPS_D * TAPS_H * TAPS_W;
constexpr int ROWS = BLOCKS * 64, WIDTH = PIXELS_ARE_ROWS ? TILE_F : TILE_P;
static_assert((PIXELS_ARE_ROWS ? TILE_P : TILE_F) == CONSUMERS * ROWS, "a team makes a tile");
constexpr int FILTER_TILES = (FILTERS + TILE_F - 1) / TILE_F;
constexpr int COLUMNS = GROUPS * FILTER_TILES;
constexpr unsigned X_BYTES = TILE_P * ROW, W_BYTES = TILE_F * ROW;
// From one tile of a block to its next.
DEVICE int tile_stride() { return gridDim.x / SPLIT; }

// A warp hands its sums over in parts of 8 rows times 64 columns. A row of a part: for every 8 columns the first
// four, and behind them for every 8 columns the other four; accesses of 16 bytes meet no bank twice.
constexpr int PART = 64, PARTS_ALONG = (WIDTH + PART - 1) / PART, PARTS_DOWN = 2 * BLOCKS;
constexpr int PITCH = 72, HALF = 36;
DEVICE int part_at(int row, int column) { return row * PITCH + column % 8 / 4 * HALF + column / 8 * 4 + column % 4; }

// Shared memory, which starts at a multiple of 1024 bytes.
constexpr unsigned W_AT = STAGES * X_BYTES;
constexpr unsigned SUMS_AT = W_AT + (RESIDENT ? STEPS : STAGES) * W_BYTES;
// Parts of all warps, or the sums of a tile that blocks share.
constexpr int SUM_PITCH = WIDTH + 4;
constexpr unsigned CHANNELS_AT =
    SUMS_AT + (SPLIT > 1 ? CONSUMERS * ROWS * SUM_PITCH : TEAMS * CONSUMERS * 4 * 8 * PITCH) * 4;
constexpr unsigned TABLE_AT = (CHANNELS_AT + BUFFERS * TILE_F * CHANNEL_VALUES * 4 + 15) / 16 * 16;
constexpr unsigned BARRIERS_AT = TABLE_AT + TABLE_BYTES;
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

// Reads what the operators need of the channels of a tile, by `count` threads.
DEVICE void feed_channels(const Args& args, Channel* channels, const Barriers& barriers, Ring<BUFFERS>& ring, int tile,
                          int thread, int count) {
  const Column column = column_of(tile);
  barrier_wait(barriers.channels_empty(ring.at), ring.parity ^ 1);
#pragma unroll 1
  for (int f = thread; f < TILE_F && column.filter + f < FILTERS; f += count)
    channels[ring.at * TILE_F + f] = channel_of(args, column.group * FILTERS + column.filter + f);
  barrier_arrive(barriers.channels_full(ring.at));
  ring.next();
}

// Brings the operands of all tiles, by all threads of the FEEDERS groups.
DEVICE void feed(const Launch& launch, char* memory, const Barriers& barriers);

// Takes the warp's sums of a tile through the operators and writes them. PLAIN: nothing is scaled or blended.
template <bool PLAIN>
DEVICE void finish_sums(Args args, const float (&sums)[BLOCKS][WIDTH / 2], float* part, const Channel* channels, int tile);

// Adds the products of every step of a block's tile number `count` to the sums. A team waits until the team
// before it has seen its last operands: a barrier that is two laps behind looks like one that is done.
DEVICE void multiply(float (&sums)[BLOCKS][WIDTH / 2], unsigned shared, const Barriers& barriers, unsigned count) {
  const int consumer = (threadIdx.x / 128 - FEEDERS) % CONSUMERS, lane = threadIdx.x % 32, team = count % TEAMS;
  const int steps = step_count<STEPS>();
  Ring<STAGES> ring(count * STEPS);
  if (TEAMS > 1) barrier_wait(barriers.turn(team), (count / TEAMS & 1) ^ (team == 0));
  int last = 0;
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    barrier_wait(barriers.full(ring.at), ring.parity);
    if (TEAMS > 1 && step == STEPS - 1 && lane == 0) barrier_arrive(barriers.turn((team + 1) % TEAMS));
    const unsigned x = shared + ring.at * X_BYTES, w = shared + W_AT + (RESIDENT ? step : ring.at) * W_BYTES;
    const auto rows = operand((PIXELS_ARE_ROWS ? x : w) + consumer * (ROWS * ROW)), columns = operand(PIXELS_ARE_ROWS ? w : x);
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) pin(sums[block]);
    products_fence();
#pragma unroll
    for (int k = 0; k < TILE_K / 16; k++)
#pragma unroll
      for (int block = 0; block < BLOCKS; block++)
        products(sums[block], rows + block * (64 * ROW >> 4) + k * 2, columns + k * 2, step + k != 0, T());
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
template <int AT> DEVICE void hand_over(const float (&sums)[BLOCKS][WIDTH / 2], unsigned to, int part) {
  if constexpr (AT < PARTS_ALONG * PARTS_DOWN) {
    if (part != AT) return hand_over<AT + 1>(sums, to, part);
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const int at = AT / PARTS_DOWN * 32 + j * 4 + AT % 2 * 2;
      if (at < WIDTH / 2)
        asm volatile("st.shared.v2.f32 [%0], {%1, %2}; // part %3" ::"r"(to + j * 16),
                     "f"(sums[AT % PARTS_DOWN / 2][at]), "f"(sums[AT % PARTS_DOWN / 2][at + 1]), "n"(AT) : "memory");
    }
  }
}

// Where a lane's first pair of a part goes.
DEVICE unsigned part_of_lane(const float* part) {
  const int lane = threadIdx.x % 32;
  return shared_address(part + part_at(lane / 4, lane % 4 * 2));
}

// Whether results are scaled and blended by nothing, as usual.
DEVICE bool is_plain(const Args& args) {
  bool plain = args.beta == 0.f;
#pragma unroll
  for (int i = 0; i < OPS; i++) plain = plain && args.op[i].alpha == 1.f;
  return plain;
}

DEVICE void make_plain(Args& args) {
  args.beta = 0.f;
#pragma unroll
  for (int i = 0; i < OPS; i++) args.op[i].alpha = 1.f;
}

// What finishes a tile that blocks share.
DEVICE void finish_share(const Args& args, const float (&sums)[BLOCKS][WIDTH / 2], float* all, const Channel* channels);

extern "C" __global__ void __launch_bounds__((FEEDERS + TEAMS * CONSUMERS) * 128, PER_UNIT)
CLUSTER fuseplan_kernel(const __grid_constant__ Launch launch) {
  DYNAMIC_SHARED(char, memory);
  const Args& args = launch.args;
  const unsigned start = shared_address(memory), shared = (start + 1023) / 1024 * 1024;
  char* aligned = memory + (shared - start);
  const Barriers barriers = {shared + BARRIERS_AT};
  if (threadIdx.x == 0) {
    prefetch_map(&launch.w);
    for (int i = 0; i < STAGES; i++)
      barrier_init(barriers.full(i), FULL_ARRIVALS), barrier_init(barriers.empty(i), CONSUMERS * 4);
    for (int i = 0; i < BUFFERS; i++)
      barrier_init(barriers.channels_full(i), CHANNEL_FEEDERS), barrier_init(barriers.channels_empty(i), CONSUMERS * 128);
    for (int i = 0; i < TEAMS; i++) barrier_init(barriers.turn(i), CONSUMERS * 4);
    barrier_init(barriers.filters(), 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (threadIdx.x < FEEDERS * 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(FEED_REGISTERS));
    feed(launch, aligned, barriers);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(CONSUMER_REGISTERS));
    const Channel* channels = (const Channel*)(aligned + CHANNELS_AT);
    float* part = (float*)(aligned + SUMS_AT) + (threadIdx.x / 32 - FEEDERS * 4) * 8 * PITCH;
    float sums[BLOCKS][WIDTH / 2];
    if (RESIDENT && tile_number() < tiles_of(args.shape)) barrier_wait(barriers.filters(), 0);
    const bool plain = is_plain(args);
    unsigned count = (threadIdx.x / 128 - FEEDERS) / CONSUMERS;
#pragma unroll 1
    for (int tile = tile_number() + count * tile_stride(); tile < tiles_of(args.shape); tile += TEAMS * tile_stride()) {
      multiply(sums, shared, barriers, count);
      const Ring<BUFFERS> buffer(count);
      barrier_wait(barriers.channels_full(buffer.at), buffer.parity);
      if (SPLIT > 1) finish_share(args, sums, (float*)(aligned + SUMS_AT), channels);
      else if (plain) finish_sums<true>(args, sums, part, channels + buffer.at * TILE_F, tile);
      else finish_sums<false>(args, sums, part, channels + buffer.at * TILE_F, tile);
      barrier_arrive(barriers.channels_empty(buffer.at));
      count += TEAMS;
    }
  }
}
