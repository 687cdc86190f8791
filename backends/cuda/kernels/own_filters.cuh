// Filters of a single tap that a block has room for, all of its column's, whose channels threads want in the order of slots, in which TMA cannot
// bring them: the block's consumers do, once, so that no launch prepares them. A slot is where a channel's pixels lie in a stage, the channels
// of each of PHASES after those of the one before, and of the four slots that follow one another a thread has one.
//
// needs macros: DEVICE
// needs constants: CHANNELS, COOPERATIVE, FILTERS, FILTER_STAGES, FILTER_STEPS, PHASES, PINGPONG, PRODUCERS, REARRANGED, RESIDENT, ROW,
//   STREAMED, TAPS, TILE_F, TILE_K, W_AT, W_BYTES
// needs sizes: w_k
// needs types: Args, Barriers, Column, Launch, PipelineState, T, Vector, idx
// needs functions: column_of, mbarrier_arrive, mbarrier_wait, tile_number, tile_stride, tiles_of, wait_for_grids

static_assert(STREAMED && RESIDENT && REARRANGED && TAPS == 1 && FILTER_STAGES == FILTER_STEPS && sizeof(T) == 2 &&
                  CHANNELS % TILE_K == 0 && FILTERS % TILE_F == 0,
              "a step's stage always has the same filters");

DEVICE bool prepares(const Launch&) { return false; }
DEVICE void prepare(const Launch&) {}
DEVICE void wait_for_image(const Launch&) { wait_for_grids(); }

// The place in a step's depth of one of its channels.
DEVICE constexpr int place_of(int channel) {
  const int slot = channel % PHASES * (TILE_K / PHASES) + channel / PHASES;
  return slot / 16 * 16 + slot / 4 % 2 * 8 + slot % 4 * 2 + slot / 8 % 2;
}

// A thread reads eight channels of each of some filters before it writes them, as TMA would, a word at a time where two are one.
DEVICE void rearrange_filters(const Args& args, char* memory, float*) {
  constexpr int THREADS = PINGPONG * COOPERATIVE * 128, ACROSS = CHANNELS / 8, ALL = TILE_F * ACROSS, SOME = 4;
  constexpr unsigned SWIZZLED = ROW == 128 ? 7 : ROW == 64 ? 3 : 1;
  constexpr bool PAIRS = TILE_K / PHASES == 8 && PHASES > 1;
  const Column column = column_of(tile_number());
  const T* const first = (const T*)args.op[0].p[0] + (column.group * FILTERS + column.filter) * (idx)args.shape.w_k;
#pragma unroll 1
  for (int from = threadIdx.x - PRODUCERS * 128; from < ALL; from += SOME * THREADS) {
    Vector<T, 8> v[SOME];
#pragma unroll
    for (int i = 0; i < SOME; i++) {
      const int at = from + i * THREADS;
      if (at < ALL) v[i] = *(const Vector<T, 8>*)(first + at / ACROSS * (idx)args.shape.w_k + at % ACROSS * 8);
    }
#pragma unroll
    for (int i = 0; i < SOME; i++) {
      const int at = from + i * THREADS, row = at / ACROSS, channel = at % ACROSS * 8;
      if (at >= ALL) break;
      char* const to = memory + (W_AT + channel / TILE_K * W_BYTES);
#pragma unroll
      for (int e = 0; e < 8; e += PAIRS ? 2 : 1) {
        const unsigned offset = row * ROW + place_of(channel % TILE_K + e) * 2;
        char* const element = to + (offset ^ (offset >> 7 & SWIZZLED) << 4);
        if (PAIRS) *(unsigned*)element = v[i].at[e].bits | (unsigned)v[i].at[(e + 1) % 8].bits << 16;
        else *(T*)element = v[i].at[e];
      }
    }
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

DEVICE void stream_filters(const Launch& launch, unsigned, const Barriers& barriers) {
  PipelineState<FILTER_STAGES> pipe(0);
#pragma unroll 1
  for (int tile = tile_number(); tile < tiles_of(launch.args.shape); tile += tile_stride())
#pragma unroll 1
    for (int step = 0; step < FILTER_STEPS; step++) {
      mbarrier_wait(barriers.filters_empty(pipe.stage), pipe.phase ^ 1);
      mbarrier_arrive(barriers.filters_full(pipe.stage));
      pipe.next();
    }
}
