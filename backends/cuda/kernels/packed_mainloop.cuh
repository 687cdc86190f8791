// The main loop of Load::Packed. A thread reads the pixels of its rows to registers, two channels of a pixel to each: those
// of 64 rows of a step while the tensor cores multiply those of the 64 rows before.
//
// needs macros: DEVICE
// needs constants: ATOMS, CHANNELS, COLUMNS, COOPERATIVE, COVERED_P, PINGPONG, PIXELS_ARE_ROWS, PLANE,
//   PRODUCERS, RESIDENT, ROWS, STAGES, STEPS, TILE_K, WIDTH, W_AT, W_BYTES, X_BYTES
// needs types: Barriers, PipelineState, T
// needs functions: first_step, mbarrier_arrive, mbarrier_wait, interleaved, step_count, tile_number, tile_stride, wgmma,
//   wgmma_commit, wgmma_descriptor, wgmma_fence, wgmma_fence_accumulators, wgmma_fence_rows,
//   wgmma_wait

static_assert(PIXELS_ARE_ROWS && ATOMS <= 2 && sizeof(T) == 2 && CHANNELS % 2 == 0,
              "a register has two channels of a pixel");
// Of the depth each instruction takes 16 channels.
constexpr int BLOCKS = TILE_K / 16;
// Channels of the last step.
constexpr int LAST_CHANNELS = CHANNELS - (STEPS - 1) * TILE_K;

// Two channels of a pixel.
DEVICE unsigned channel_pair(unsigned at) {
  unsigned pair;
  asm volatile(
      "{\n.reg .b16 low, high;\nld.shared.b16 low, [%1];\nld.shared.b16 high, [%2];\nmov.b32 %0, {low, high};\n}"
      : "=r"(pair)
      : "r"(at), "r"(at + PLANE * 2)
      : "memory");
  return pair;
}

// A thread's factors of 64 rows in a step, as `wgmma` takes them: of each 16 channels two at lane % 4 * 2 of both of its
// rows, and the same 8 channels further.
struct Factors {
  unsigned v[BLOCKS][4];

  // `rows` are where the first of the thread's channels lies, of each of its rows.
  DEVICE void load(const unsigned (&rows)[2]) {
#pragma unroll
    for (int k = 0; k < BLOCKS; k++)
#pragma unroll
      for (int e = 0; e < 4; e++) v[k][e] = channel_pair(rows[e % 2] + (k * 16 + e / 2 * 8) * (PLANE * 2));
  }

  // Channels behind the last one are zeros: the stage has what an earlier step left there.
  DEVICE void cut() {
#pragma unroll
    for (int k = 0; k < BLOCKS; k++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        if (k * 16 + e / 2 * 8 + (int)threadIdx.x % 4 * 2 >= LAST_CHANNELS) v[k][e] = 0;
  }
};

// Where in a stage the thread's first channel of a row of the tile lies. Rows without a pixel have that of another one.
DEVICE unsigned row_offset(int first, int row) {
  const int pixel = first % PLANE + (row < COVERED_P ? row : COVERED_P - 1);
  return pixel / PLANE * (TILE_K * PLANE * 2) + pixel % PLANE * 2 + threadIdx.x % 4 * 2 * (PLANE * 2);
}

// The tile's pixel in one of a thread's rows.
DEVICE int pixel_of_row(int atom, int row) {
  const int consumer = (threadIdx.x / 128 - PRODUCERS) % COOPERATIVE;
  return interleaved(consumer * ROWS + atom * 64 + threadIdx.x / 32 % 4 * 16 + row * 8 + threadIdx.x % 32 / 4);
}

DEVICE void mainloop(float (&acc)[ATOMS][WIDTH / 2], unsigned shared, const Barriers& barriers, unsigned count) {
  const int lane = threadIdx.x % 32, set = count % PINGPONG, steps = step_count<STEPS>();
  const int first = (tile_number() + (int)count * tile_stride()) / COLUMNS * COVERED_P;
  unsigned offsets[ATOMS][2];
#pragma unroll
  for (int i = 0; i < ATOMS * 2; i++) offsets[i / 2][i % 2] = row_offset(first, pixel_of_row(i / 2, i % 2));
  PipelineState<STAGES> pipe(count * STEPS);
  if (PINGPONG > 1) mbarrier_wait(barriers.order(set), (count / PINGPONG & 1) ^ (set == 0));
  const auto wait_for_step = [&](int step) {
    mbarrier_wait(barriers.full(pipe.stage), pipe.phase);
    if (PINGPONG > 1 && step == STEPS - 1 && lane == 0) mbarrier_arrive(barriers.order((set + 1) % PINGPONG));
  };
  const auto load = [&](Factors& factors, int step, int atom) {
    const unsigned x = shared + pipe.stage * X_BYTES;
    factors.load({x + offsets[atom][0], x + offsets[atom][1]});
    if (LAST_CHANNELS < TILE_K && first_step<STEPS>() + step == STEPS - 1) factors.cut();
  };
  wait_for_step(0);
  Factors factors[2] = {};
  load(factors[0], 0, 0);
  int last = 0;
#pragma unroll 1
  for (int from = 0; from < steps; from += 2 / ATOMS) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int step = from + i / ATOMS, atom = i % ATOMS, stage = pipe.stage;
      if (step >= steps) break;
      const auto columns = wgmma_descriptor(shared + W_AT + (RESIDENT ? step : stage) * W_BYTES);
      wgmma_fence_accumulators(acc[atom]);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < BLOCKS; k++) wgmma(acc[atom], factors[i].v[k], columns + k * 2, step + k != 0, T());
      wgmma_commit();
      wgmma_fence_accumulators(acc[atom]);
      // When this returns, the products of the 64 rows before have read their operands. Those of the next come meanwhile.
      wgmma_wait<1>();
      wgmma_fence_rows(factors[1 - i].v);
      if (atom == 0 && step > 0 && lane == 0) mbarrier_arrive(barriers.empty(last));
      last = stage;
      if (atom + 1 < ATOMS) {
        load(factors[1 - i], step, atom + 1);
      } else {
        pipe.next();
        if (step + 1 == steps) break;
        wait_for_step(step + 1);
        load(factors[1 - i], step + 1, 0);
      }
    }
  }
  wgmma_wait<0>();
#pragma unroll
  for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
  wgmma_fence_rows(factors[0].v);
  wgmma_fence_rows(factors[1].v);
  if (lane == 0) mbarrier_arrive(barriers.empty(last));
}
