// Convolution on Hopper's tensor cores as an implicit matrix product (sm_90a). The kernel is persistent and warp
// specialised. The first PRODUCERS warpgroups of a block bring operands and the parameters of channels into shared
// memory; the consumer warpgroups behind them multiply with wgmma and run the epilogue. COOPERATIVE consumer
// warpgroups share a tile, and each computes ATOMS * 64 rows of it. PINGPONG sets of them alternate between the block's
// tiles, so that one set multiplies while another is in its epilogue. The producers run as many stages ahead as there
// are, also while a tile is in its epilogue. Rows of the product are pixels and columns are filters (PIXELS_ARE_ROWS),
// or the other way round. RESIDENT says that a block's filters never change: they are loaded once.
// The text behind this one says how operands come (`produce`) and how accumulators are written (`epilogue`).
//
// needs macros: CLUSTER, DEVICE, DYNAMIC_SHARED
// needs constants: ATOMS, CHANNEL_PRODUCERS, CHANNEL_STAGES, CHANNEL_VALUES, CONSUMER_REGISTERS, COOPERATIVE, FILTERS,
//   FULL_ARRIVALS, GROUPS, OCCUPANCY, OPS, PINGPONG, PIXELS_ARE_ROWS, PRODUCERS, PRODUCER_REGISTERS, RESIDENT, ROW,
//   SHARED, SPLIT, STAGES, STEPS, TABLE_BYTES, TAPS_D, TAPS_H, TAPS_W, TILE_F, TILE_P
// needs sizes: pixels
// needs types: Args, Channel, Shape, T, TensorMap
// needs functions: affine, channel_of, mbarrier_arrive, mbarrier_init, mbarrier_wait, shared_address, step_count,
//   tile_number, tma_prefetch_map, wgmma, wgmma_commit, wgmma_descriptor, wgmma_fence, wgmma_fence_accumulators,
//   wgmma_wait

struct Launch {
  TensorMap x, w;
  Args args;
};

constexpr int TAPS = TAPS_D * TAPS_H * TAPS_W;
constexpr int ROWS = ATOMS * 64, WIDTH = PIXELS_ARE_ROWS ? TILE_F : TILE_P;
static_assert((PIXELS_ARE_ROWS ? TILE_P : TILE_F) == COOPERATIVE * ROWS,
              "a set of consumer warpgroups computes a tile");
constexpr int FILTER_TILES = (FILTERS + TILE_F - 1) / TILE_F;
constexpr int COLUMNS = GROUPS * FILTER_TILES;
constexpr unsigned X_BYTES = TILE_P * ROW, W_BYTES = TILE_F * ROW;
// The persistent tile scheduler: a block's first tile is `tile_number()`, and its next one `tile_stride()` further.
DEVICE int tile_stride() { return gridDim.x / SPLIT; }

// In the epilogue a warp passes its accumulators through shared memory in parts of PART_ROWS rows times PART columns, which
// are no more than a narrow tile has, so that every lane has something to finish. A row of a part has the first four of
// every 8 columns, and behind them the other four of every 8 columns, so that accesses of 16 bytes have no bank conflicts.
constexpr int PART = WIDTH > 32 ? 64 : WIDTH > 16 ? 32 : 16, PART_ROWS = PART == 64 ? 8 : 16;
constexpr int PARTS_ALONG = (WIDTH + PART - 1) / PART, PARTS_DOWN = ATOMS * 16 / PART_ROWS;
constexpr int PITCH = PART + 8, HALF = PITCH / 2, PART_FLOATS = PART_ROWS * PITCH;
DEVICE int part_at(int row, int column) { return row * PITCH + column % 8 / 4 * HALF + column / 8 * 4 + column % 4; }

// Offsets in shared memory, which starts at a multiple of 1024 bytes.
constexpr unsigned W_AT = STAGES * X_BYTES;
constexpr unsigned ACC_AT = W_AT + (RESIDENT ? STEPS : STAGES) * W_BYTES;
// Here lie the parts of all warps, or all accumulators of a tile that is split over a cluster.
constexpr int ACC_PITCH = WIDTH + 4;
constexpr unsigned CHANNELS_AT =
    ACC_AT + (SPLIT > 1 ? COOPERATIVE * ROWS * ACC_PITCH : PINGPONG * COOPERATIVE * 4 * PART_FLOATS) * 4;
constexpr unsigned TABLE_AT = (CHANNELS_AT + CHANNEL_STAGES * TILE_F * CHANNEL_VALUES * 4 + 15) / 16 * 16;
constexpr unsigned BARRIERS_AT = TABLE_AT + TABLE_BYTES;
static_assert(CHANNEL_VALUES == 0 || sizeof(Channel) == CHANNEL_VALUES * 4, "a channel's numbers are counted");
static_assert(BARRIERS_AT + (2 * STAGES + 2 * CHANNEL_STAGES + PINGPONG + 1) * 8 + 1024 <= SHARED,
              "shared memory is large enough");

// The block's mbarriers by their addresses: for each stage one that says that it is full and one that it is empty, the
// same for the stages of channel parameters, one for each set of consumers that orders the sets' main loops, and one
// for resident filters.
struct Barriers {
  unsigned first;
  DEVICE unsigned full(int stage) const { return first + stage * 8; }
  DEVICE unsigned empty(int stage) const { return first + (STAGES + stage) * 8; }
  DEVICE unsigned channels_full(int stage) const { return first + (2 * STAGES + stage) * 8; }
  DEVICE unsigned channels_empty(int stage) const { return first + (2 * STAGES + CHANNEL_STAGES + stage) * 8; }
  DEVICE unsigned order(int set) const { return first + (2 * STAGES + 2 * CHANNEL_STAGES + set) * 8; }
  DEVICE unsigned filters() const { return order(PINGPONG); }
};

// The state of a pipeline of N stages, `count` stages after its start: the stage, and the phase of its mbarriers.
template <int N> struct PipelineState {
  int stage;
  unsigned phase;
  DEVICE explicit PipelineState(unsigned count) : stage(count % N), phase(count / N & 1) {}
  DEVICE void next() {
    if (++stage == N) stage = 0, phase ^= 1;
  }
};

// The column of tiles that a tile is in: its group, and the first of its filters within the group.
struct Column {
  int group, filter;
};
DEVICE Column column_of(int tile) {
  const int column = tile % COLUMNS;
  return {column / FILTER_TILES, column % FILTER_TILES * TILE_F};
}
DEVICE int tiles_of(const Shape& s) { return (s.pixels + TILE_P - 1) / TILE_P * COLUMNS; }

// Loads what the operators need of a tile's channels into the next stage of channel parameters. `count` threads call it.
DEVICE void load_channels(const Args& args, Channel* channels, const Barriers& barriers,
                          PipelineState<CHANNEL_STAGES>& pipe, int tile, int thread, int count) {
  const Column column = column_of(tile);
  mbarrier_wait(barriers.channels_empty(pipe.stage), pipe.phase ^ 1);
#pragma unroll 1
  for (int f = thread; f < TILE_F && column.filter + f < FILTERS; f += count)
    channels[pipe.stage * TILE_F + f] = channel_of(args, column.group * FILTERS + column.filter + f);
  mbarrier_arrive(barriers.channels_full(pipe.stage));
  pipe.next();
}

// Brings the operands of all tiles. All threads of the producer warpgroups call it.
DEVICE void produce(const Launch& launch, char* memory, const Barriers& barriers);

// Takes the warp's accumulators of a tile through the operators and writes the results. PLAIN says that nothing is scaled
// or blended.
template <bool PLAIN>
DEVICE void epilogue(Args args, float (&acc)[ATOMS][WIDTH / 2], float* part, const Channel* channels, int tile);

// The main loop: accumulates the products of every step of the block's tile number `count`. A set of consumers waits
// until the set before it has seen its last stage become full, since an mbarrier that is two phases behind looks like one
// that has completed.
DEVICE void mainloop(float (&acc)[ATOMS][WIDTH / 2], unsigned shared, const Barriers& barriers, unsigned count) {
  const int consumer = (threadIdx.x / 128 - PRODUCERS) % COOPERATIVE, lane = threadIdx.x % 32, set = count % PINGPONG;
  const int steps = step_count<STEPS>();
  PipelineState<STAGES> pipe(count * STEPS);
  if (PINGPONG > 1) mbarrier_wait(barriers.order(set), (count / PINGPONG & 1) ^ (set == 0));
  int last = 0;
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    mbarrier_wait(barriers.full(pipe.stage), pipe.phase);
    if (PINGPONG > 1 && step == STEPS - 1 && lane == 0) mbarrier_arrive(barriers.order((set + 1) % PINGPONG));
    const unsigned x = shared + pipe.stage * X_BYTES, w = shared + W_AT + (RESIDENT ? step : pipe.stage) * W_BYTES;
    const auto rows = wgmma_descriptor((PIXELS_ARE_ROWS ? x : w) + consumer * (ROWS * ROW)),
               columns = wgmma_descriptor(PIXELS_ARE_ROWS ? w : x);
#pragma unroll
    for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < ROW / 32; k++)
#pragma unroll
      for (int atom = 0; atom < ATOMS; atom++)
        wgmma(acc[atom], rows + atom * (64 * ROW >> 4) + k * 2, columns + k * 2, step + k != 0, T());
    wgmma_commit();
#pragma unroll
    for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
    // When this returns, the wgmma of the step before have read their operands, and their stage is released.
    wgmma_wait<1>();
    if (step > 0 && lane == 0) mbarrier_arrive(barriers.empty(last));
    last = pipe.stage;
    pipe.next();
  }
  wgmma_wait<0>();
#pragma unroll
  for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
  if (lane == 0) mbarrier_arrive(barriers.empty(last));
}

// Takes a tile's accumulators through `affine` where columns are filters: a thread has the same two of every eight columns in
// all of its rows, so that their parameters are read once and need no registers afterwards.
DEVICE void affine_columns(const Args& args, float (&acc)[ATOMS][WIDTH / 2], const Channel* channels) {
  struct alignas(8) Pair {
    Channel at[2];
  };
  const Pair* pairs = (const Pair*)channels + threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < WIDTH / 2; i += 4) {
    // Registers hold the parameters of 16 columns at a time: no load moves up beyond this.
    if (i % 8 == 0) __syncwarp();
    const Pair pair = pairs[i];
#pragma unroll
    for (int atom = 0; atom < ATOMS; atom++)
#pragma unroll
      for (int e = 0; e < 4; e++) acc[atom][i + e] = affine(args, pair.at[e % 2], acc[atom][i + e]);
  }
}

// Stores this thread's accumulators of a part to shared memory. The compiler must know which registers these are, so the
// part is found by comparing, and the comment in the instruction keeps the compiler from merging all of these stores into
// one with a computed index.
template <int AT> DEVICE void stage_accumulators(const float (&acc)[ATOMS][WIDTH / 2], unsigned to, int part) {
  if constexpr (AT < PARTS_ALONG * PARTS_DOWN) {
    if (part != AT) return stage_accumulators<AT + 1>(acc, to, part);
#pragma unroll
    for (int row = 0; row < PART_ROWS; row += 8) {
      const int below = AT % PARTS_DOWN * PART_ROWS + row;
#pragma unroll
      for (int j = 0; j < PART / 8; j++) {
        const int at = AT / PARTS_DOWN * (PART / 2) + j * 4 + below % 16 / 4;
        if (at < WIDTH / 2)
          asm volatile("st.shared.v2.f32 [%0], {%1, %2}; // part %3" ::"r"(to + (row * PITCH + j * 4) * 4),
                       "f"(acc[below / 16][at]), "f"(acc[below / 16][at + 1]), "n"(AT)
                       : "memory");
      }
    }
  }
}

// The address of a lane's first pair of accumulators in a part.
DEVICE unsigned part_address(const float* part) {
  const int lane = threadIdx.x % 32;
  return shared_address(part + part_at(lane / 4, lane % 4 * 2));
}

// Whether every alpha is 1 and beta is 0, as usual.
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

// Starts to bring the residuals of a tile into L2, by `count` threads.
DEVICE void prefetch_residuals(const Args& args, int tile, int thread, int count);

// The epilogue of a tile that is split over a cluster of blocks.
DEVICE void epilogue_split(const Args& args, const float (&acc)[ATOMS][WIDTH / 2], float* all, const Channel* channels);

extern "C" __global__ void __launch_bounds__((PRODUCERS + PINGPONG * COOPERATIVE) * 128, OCCUPANCY) CLUSTER
    fuseplan_kernel(const __grid_constant__ Launch launch) {
  DYNAMIC_SHARED(char, memory);
  const Args& args = launch.args;
  const unsigned start = shared_address(memory), shared = (start + 1023) / 1024 * 1024;
  char* aligned = memory + (shared - start);
  const Barriers barriers = {shared + BARRIERS_AT};
  if (threadIdx.x == 0) {
    tma_prefetch_map(&launch.w);
    for (int i = 0; i < STAGES; i++)
      mbarrier_init(barriers.full(i), FULL_ARRIVALS), mbarrier_init(barriers.empty(i), COOPERATIVE * 4);
    for (int i = 0; i < CHANNEL_STAGES; i++)
      mbarrier_init(barriers.channels_full(i), CHANNEL_PRODUCERS),
          mbarrier_init(barriers.channels_empty(i), COOPERATIVE * 128);
    for (int i = 0; i < PINGPONG; i++) mbarrier_init(barriers.order(i), COOPERATIVE * 4);
    mbarrier_init(barriers.filters(), 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (threadIdx.x < PRODUCERS * 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(PRODUCER_REGISTERS));
    produce(launch, aligned, barriers);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(CONSUMER_REGISTERS));
    const Channel* channels = (const Channel*)(aligned + CHANNELS_AT);
    float* part = (float*)(aligned + ACC_AT) + (threadIdx.x / 32 - PRODUCERS * 4) * PART_FLOATS;
    float acc[ATOMS][WIDTH / 2];
    if (RESIDENT && tile_number() < tiles_of(args.shape)) mbarrier_wait(barriers.filters(), 0);
    const bool plain = is_plain(args);
    unsigned count = (threadIdx.x / 128 - PRODUCERS) / COOPERATIVE;
#pragma unroll 1
    for (int tile = tile_number() + count * tile_stride(); tile < tiles_of(args.shape);
         tile += PINGPONG * tile_stride()) {
      prefetch_residuals(args, tile, threadIdx.x % (COOPERATIVE * 128), COOPERATIVE * 128);
      mainloop(acc, shared, barriers, count);
      const PipelineState<CHANNEL_STAGES> channel_pipe(count);
      mbarrier_wait(barriers.channels_full(channel_pipe.stage), channel_pipe.phase);
      if (SPLIT > 1) epilogue_split(args, acc, (float*)(aligned + ACC_AT), channels);
      else if (plain) epilogue<true>(args, acc, part, channels + channel_pipe.stage * TILE_F, tile);
      else epilogue<false>(args, acc, part, channels + channel_pipe.stage * TILE_F, tile);
      mbarrier_arrive(barriers.channels_empty(channel_pipe.stage));
      count += PINGPONG;
    }
  }
}
