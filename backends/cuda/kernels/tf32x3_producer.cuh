// The producer warpgroup where TMA loads all operands and products are 3xTF32: one thread issues the loads
// (`load_operands`), and the other three warps load the parameters of channels, and put in place of the filters of each
// stage their high parts and behind these their low parts.
//
// needs macros: DEVICE
// needs constants: CHANNELS_AT, CHANNEL_STAGES, RESIDENT, STAGES, STEPS, W_AT, W_BYTES, W_LOADED
// needs types: Barriers, Channel, Launch, Parts, PipelineState
// needs functions: is_elected, load_channels, load_operands, mbarrier_arrive, mbarrier_wait, parts_of, shared_address,
//   step_count, tile_number, tile_stride, tiles_of, wait_for_grids

constexpr int SPLITTERS = 96;

// Splits a step's filters, and says so.
DEVICE void split_filters(unsigned at, unsigned barrier) {
#pragma unroll 4
  for (unsigned i = (threadIdx.x - 32) * 16; i < W_LOADED; i += SPLITTERS * 16) {
    float v[4];
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                 : "r"(at + i)
                 : "memory");
    Parts parts[4];
#pragma unroll
    for (int e = 0; e < 4; e++) parts[e] = parts_of(v[e]);
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at + i), "r"(parts[0].high), "r"(parts[1].high),
                 "r"(parts[2].high), "r"(parts[3].high)
                 : "memory");
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at + W_LOADED + i), "f"(parts[0].low),
                 "f"(parts[1].low), "f"(parts[2].low), "f"(parts[3].low)
                 : "memory");
  }
  // The tensor cores see what these threads wrote.
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncwarp();
  if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier);
}

DEVICE void produce(const Launch& launch, char* memory, const Barriers& barriers) {
  const unsigned shared = shared_address(memory);
  if (threadIdx.x < 32) {
    if (is_elected()) load_operands(launch, shared, barriers);
    return;
  }
  wait_for_grids();
  const int tiles = tiles_of(launch.args.shape);
  if (RESIDENT && tile_number() < tiles) {
    mbarrier_wait(barriers.filters(), 0);
#pragma unroll 1
    for (int step = 0; step < STEPS; step++) split_filters(shared + W_AT + step * W_BYTES, barriers.parts(0));
  }
  PipelineState<CHANNEL_STAGES> channel_pipe(0);
  PipelineState<STAGES> pipe(0);
#pragma unroll 1
  for (int tile = tile_number(); tile < tiles; tile += tile_stride()) {
    load_channels(launch.args, (Channel*)(memory + CHANNELS_AT), barriers, channel_pipe, tile, threadIdx.x - 32,
                  SPLITTERS);
#pragma unroll 1
    for (int step = RESIDENT ? STEPS : 0; step < step_count<STEPS>(); step++) {
      mbarrier_wait(barriers.full(pipe.stage), pipe.phase);
      split_filters(shared + W_AT + pipe.stage * W_BYTES, barriers.parts(pipe.stage));
      pipe.next();
    }
  }
}
