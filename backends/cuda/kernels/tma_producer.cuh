// The producer warpgroup where TMA loads all operands: one thread issues the loads (`load_operands`), another one those of
// filters where they are STREAMED, and the other warps load the parameters of channels.
//
// needs macros: DEVICE
// needs constants: CHANNELS_AT, CHANNEL_PRODUCERS, CHANNEL_STAGES
// needs types: Barriers, Channel, Launch, PipelineState
// needs functions: is_elected, load_channels, load_operands, shared_address, stream_filters, tile_number,
//   tile_stride, tiles_of, wait_for_grids

DEVICE void produce(const Launch& launch, char* memory, const Barriers& barriers) {
  constexpr int ISSUERS = 128 - CHANNEL_PRODUCERS;
  if (threadIdx.x >= ISSUERS) {
    wait_for_grids();
    PipelineState<CHANNEL_STAGES> pipe(0);
#pragma unroll 1
    for (int tile = tile_number(); tile < tiles_of(launch.args.shape); tile += tile_stride())
      load_channels(launch.args, (Channel*)(memory + CHANNELS_AT), barriers, pipe, tile, threadIdx.x - ISSUERS,
                    CHANNEL_PRODUCERS);
  } else if (is_elected()) {
    if (threadIdx.x < 32) load_operands(launch, shared_address(memory), barriers);
    else stream_filters(launch, shared_address(memory), barriers);
  }
}
