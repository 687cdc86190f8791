// Load::Planes where TMA cannot address planes, and these begin and end at multiples of 8 bytes: the threads of the producer
// warpgroup copy them to where TMA would write them, by asynchronous copies of four positions, of which those of AHEAD stages are
// on their way while one is waited for. Warps take channels in turns, and the lanes of a warp copy positions side by side.
//
// needs macros: DEVICE
// needs constants: BLOCK_P, CHANNELS, CHANNELS_AT, CHANNEL_STAGES, FILTERS, PRODUCERS, REARRANGED, RESIDENT, STAGES, STEPS,
//   TAPS, TILE_K, TILE_P, W_AT, W_BYTES, X_BYTES
// needs sizes: out_plane, x_c, x_n
// needs types: Args, Barriers, Channel, Column, Launch, PipelineState, Shape, T
// needs functions: column_of, first_step, load_channels, mbarrier_arrive, mbarrier_expect_tx, mbarrier_wait, pixels_of,
//   shared_address, step_count, tile_number, tile_stride, tiles_of, tma_load_rows, wait_for_grids

static_assert(STEPS == (CHANNELS + TILE_K - 1) / TILE_K && TAPS == 1 && sizeof(T) == 2, "as the launch was planned");
// Positions that a lane copies at once, and how often the positions of a tile take that.
constexpr int RUN = 4, RUNS = TILE_P / RUN;
// Lanes along a channel, and what each of them copies of it.
constexpr int ALONG = RUNS > 16 ? 32 : 16, RUNS_OF_LANE = (RUNS + ALONG - 1) / ALONG;
// Channels that all warps take at once, and how often they do so in a step.
constexpr int CHANNELS_AT_ONCE = PRODUCERS * 128 / ALONG, ROUNDS = TILE_K / CHANNELS_AT_ONCE;
static_assert(ROUNDS * CHANNELS_AT_ONCE == TILE_K && BLOCK_P == 64, "warps share a stage, whose rows have 128 bytes");
// Consumers release a stage when they have begun the next one, which must be full before the stage is waited for.
constexpr int AHEAD = STAGES - 2;

// Where a lane's run lies in a stage: rows of BLOCK_P positions, swizzled over 128 bytes.
DEVICE unsigned run_address(unsigned stage, int round, int run) {
  const int row = threadIdx.x / ALONG + round * CHANNELS_AT_ONCE, position = (run * ALONG + threadIdx.x % ALONG) * RUN;
  return stage + position / BLOCK_P * (TILE_K * BLOCK_P * 2) + row * (BLOCK_P * 2) +
         (position % BLOCK_P * 2 ^ (row & 7) << 4);
}

// Starts to copy a run if it is wanted; it comes as zeros if it does not exist.
DEVICE void copy_run(unsigned to, const char* from, bool wanted, bool exists) {
  asm volatile(
      "{\n.reg .pred wanted, ignored;\nsetp.ne.s32 wanted, %3, 0;\nsetp.eq.s32 ignored, %4, 0;\n"
      "@wanted cp.async.ca.shared.global [%0], [%1], %2, ignored;\n}" ::"r"(to),
      "l"(from), "n"(RUN * 2), "r"((int)wanted), "r"((int)exists)
      : "memory");
}

// What is copied next.
struct Copier {
  const Args& args;
  // The lane's first run of its next channel, and positions of the tile from there on.
  const char* from;
  int left;

  DEVICE explicit Copier(const Args& args) : args(args) {}

  DEVICE void start(int tile) {
    const Shape& s = args.shape;
    const int first = pixels_of(s, tile).first, n = first / s.out_plane, p = first % s.out_plane;
    const int channel = column_of(tile).group * CHANNELS + first_step<STEPS>() * TILE_K + threadIdx.x / ALONG;
    from = (const char*)((const T*)args.x + n * s.x_n + channel * s.x_c + p + threadIdx.x % ALONG * RUN);
    left = (s.out_plane - p < TILE_P ? s.out_plane - p : TILE_P) - (int)threadIdx.x % ALONG * RUN;
  }

  // Channels behind the last one come as zeros.
  DEVICE void copy(unsigned stage, int step) {
    const long long pitch = CHANNELS_AT_ONCE * args.shape.x_c * (long long)sizeof(T);
    const int first = step * TILE_K + (int)threadIdx.x / ALONG;
#pragma unroll
    for (int i = 0; i < ROUNDS; i++, from += pitch) {
      const bool exists = CHANNELS % TILE_K == 0 || first + i * CHANNELS_AT_ONCE < CHANNELS;
#pragma unroll
      for (int j = 0; j < RUNS_OF_LANE; j++)
        copy_run(run_address(stage, i, j), from + j * ALONG * RUN * 2, left - j * ALONG * RUN > 0, exists);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
};

// Makes copied stages full, one after the other.
struct Completer {
  const Launch& launch;
  char* memory;
  const Barriers& barriers;
  PipelineState<STAGES> pipe;
  PipelineState<CHANNEL_STAGES> channel_pipe;
  int tile, step;

  DEVICE Completer(const Launch& launch, char* memory, const Barriers& barriers)
      : launch(launch), memory(memory), barriers(barriers), pipe(0), channel_pipe(0), tile(tile_number()), step(0) {}

  // A tile's channels are loaded here, and not when its first stage is copied: that would wait for consumers of tiles before,
  // which may still want stages that are on their way.
  DEVICE void complete() {
    if (step == 0)
      load_channels(launch.args, (Channel*)(memory + CHANNELS_AT), barriers, channel_pipe, tile, threadIdx.x,
                    PRODUCERS * 128);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(barriers.full(pipe.stage));
    pipe.next();
    if (++step == step_count<STEPS>()) step = 0, tile += tile_stride();
  }
};

DEVICE void produce(const Launch& launch, char* memory, const Barriers& barriers) {
  const Shape& s = launch.args.shape;
  const unsigned shared = shared_address(memory);
  wait_for_grids();
  if (RESIDENT && !REARRANGED && threadIdx.x == 0 && tile_number() < tiles_of(s)) {
    const Column column = column_of(tile_number());
    mbarrier_expect_tx(barriers.filters(), STEPS * W_BYTES);
#pragma unroll 1
    for (int step = 0; step < STEPS; step++)
      tma_load_rows(shared + W_AT + step * W_BYTES, &launch.w, barriers.filters(), step * TILE_K,
                    column.group * FILTERS + column.filter);
  }
  Copier copier(launch.args);
  Completer completer(launch, memory, barriers);
  PipelineState<STAGES> pipe(0);
  int ahead = 0;
#pragma unroll 1
  for (int tile = tile_number(); tile < tiles_of(s); tile += tile_stride()) {
    const Column column = column_of(tile);
    copier.start(tile);
    const int begin = first_step<STEPS>(), end = begin + step_count<STEPS>();
#pragma unroll 1
    for (int step = begin; step < end; step++) {
      mbarrier_wait(barriers.empty(pipe.stage), pipe.phase ^ 1);
      if (!RESIDENT && threadIdx.x == 0) {
        mbarrier_expect_tx(barriers.full(pipe.stage), W_BYTES);
        tma_load_rows(shared + W_AT + pipe.stage * W_BYTES, &launch.w, barriers.full(pipe.stage), step * TILE_K,
                      column.group * FILTERS + column.filter);
      }
      copier.copy(shared + pipe.stage * X_BYTES, step);
      pipe.next();
      if (ahead < AHEAD) {
        ahead++;
        continue;
      }
      asm volatile("cp.async.wait_group %0;" ::"n"(AHEAD) : "memory");
      completer.complete();
    }
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
#pragma unroll 1
  for (; ahead > 0; ahead--) completer.complete();
}
