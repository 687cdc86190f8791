// The producer warpgroup where TMA loads all operands: one thread issues the loads (`load_operands`), and the other three
// warps load the parameters of channels.
//
// needs macros: DEVICE
// needs constants: CHANNELS_AT, CHANNEL_STAGES
// needs types: Barriers, Channel, Launch, PipelineState
// needs functions: is_elected, load_channels, load_operands, shared_address, tile_number, tile_stride, tiles_of,
//   wait_for_grids

DEVICE void produce(const Launch& launch, char* memory, const Barriers& barriers) {
  if (threadIdx.x >= 32) {
    wait_for_grids();
    PipelineState<CHANNEL_STAGES> pipe(0);
#pragma unroll 1
    for (int tile = tile_number(); tile < tiles_of(launch.args.shape); tile += tile_stride())
      load_channels(launch.args, (Channel*)(memory + CHANNELS_AT), barriers, pipe, tile, threadIdx.x - 32, 96);
  } else if (is_elected()) {
    load_operands(launch, shared_address(memory), barriers);
  }
}
