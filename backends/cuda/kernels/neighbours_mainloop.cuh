// The main loop of Load::Packed where planes have a multiple of NEIGHBOURS pixels, of which a lane has as many that lie side by side, in all
// of its rows, so that it reads those of a channel at once, those of an atom's share of a step while the tensor cores multiply those before.
//
// needs macros: DEVICE
// needs constants: ATOMS, CHANNELS, COLUMNS, COOPERATIVE, COVERED_P, NEIGHBOURS, PINGPONG, PIXELS_ARE_ROWS, PLANE,
//   PRODUCERS, RESIDENT, ROWS, STAGES, STEPS, TILE_K, WIDTH, W_AT, W_BYTES, X_BYTES
// needs types: Barriers, PipelineState, T
// needs functions: first_step, mbarrier_arrive, mbarrier_wait, step_count, tile_number, tile_stride, wgmma,
//   wgmma_commit, wgmma_descriptor, wgmma_fence, wgmma_fence_accumulators, wgmma_fence_rows, wgmma_wait

static_assert(PIXELS_ARE_ROWS && ATOMS <= 2 && sizeof(T) == 2 && CHANNELS % 2 == 0,
              "a register has two channels of a pixel");
static_assert(NEIGHBOURS == 2 * ATOMS && PLANE % NEIGHBOURS == 0 && COVERED_P % NEIGHBOURS == 0,
              "a lane's pixels are of one image");
// Of the depth each instruction takes 16 channels, and each share of a step as many instructions of an atom.
constexpr int SHARE_BLOCKS = TILE_K / 16 / ATOMS;
static_assert(SHARE_BLOCKS * ATOMS * 16 == TILE_K, "shares are equal");
// Channels of the last step.
constexpr int LAST_CHANNELS = CHANNELS - (STEPS - 1) * TILE_K;

// The lane's pixels of a channel, two in each word.
DEVICE void load_neighbours(unsigned (&words)[1], unsigned at) {
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(words[0]) : "r"(at) : "memory");
}
DEVICE void load_neighbours(unsigned (&words)[2], unsigned at) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "r"(at) : "memory");
}

// A thread's factors of a share of a step, as `wgmma` takes them: of each 16 channels two at lane % 4 * 2 of both of its rows, and the same 8
// channels further. Both rows of an atom are neighbouring pixels.
struct Factors {
  unsigned v[ATOMS][SHARE_BLOCKS][4];

  // The first of the thread's channels lies there.
  DEVICE void load(unsigned at) {
#pragma unroll
    for (int k = 0; k < SHARE_BLOCKS; k++)
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        unsigned low[ATOMS], high[ATOMS];
        const unsigned from = at + (k * 16 + e * 4) * (PLANE * 2);
        load_neighbours(low, from), load_neighbours(high, from + PLANE * 2);
#pragma unroll
        for (int atom = 0; atom < ATOMS; atom++)
          v[atom][k][e] = __byte_perm(low[atom], high[atom], 0x5410),
          v[atom][k][e + 1] = __byte_perm(low[atom], high[atom], 0x7632);
      }
  }

  // Channels behind the last one are zeros: the stage has what an earlier step left there.
  DEVICE void cut(int share) {
#pragma unroll
    for (int k = 0; k < SHARE_BLOCKS; k++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        if ((share * SHARE_BLOCKS + k) * 16 + e / 2 * 8 + (int)threadIdx.x % 4 * 2 >= LAST_CHANNELS)
#pragma unroll
          for (int atom = 0; atom < ATOMS; atom++) v[atom][k][e] = 0;
  }

  DEVICE void fence() {
#pragma unroll
    for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_rows(v[atom]);
  }
};

// The tile's pixel in a lane's row: the first of its neighbours and those behind it.
DEVICE int pixel_of_row(int atom, int row) {
  const int consumer = (threadIdx.x / 128 - PRODUCERS) % COOPERATIVE;
  return consumer * ROWS + (threadIdx.x / 32 % 4 * 8 + threadIdx.x % 32 / 4) * NEIGHBOURS + atom * 2 + row;
}

DEVICE void mainloop(float (&acc)[ATOMS][WIDTH / 2], unsigned shared, const Barriers& barriers, unsigned count) {
  const int lane = threadIdx.x % 32, set = count % PINGPONG, steps = step_count<STEPS>();
  const int first = (tile_number() + (int)count * tile_stride()) / COLUMNS * COVERED_P, mine = pixel_of_row(0, 0);
  // Rows without a pixel have those of other ones.
  const int pixel = first % PLANE + (mine < COVERED_P ? mine : COVERED_P - NEIGHBOURS);
  const unsigned offset = pixel / PLANE * (TILE_K * PLANE * 2) + pixel % PLANE * 2 + threadIdx.x % 4 * 2 * (PLANE * 2);
  PipelineState<STAGES> pipe(count * STEPS);
  if (PINGPONG > 1) mbarrier_wait(barriers.order(set), (count / PINGPONG & 1) ^ (set == 0));
  const auto wait_for_step = [&](int step) {
    mbarrier_wait(barriers.full(pipe.stage), pipe.phase);
    if (PINGPONG > 1 && step == STEPS - 1 && lane == 0) mbarrier_arrive(barriers.order((set + 1) % PINGPONG));
  };
  const auto load = [&](Factors& factors, int step, int share) {
    factors.load(shared + pipe.stage * X_BYTES + offset + share * (SHARE_BLOCKS * 16) * (PLANE * 2));
    if (LAST_CHANNELS < TILE_K && first_step<STEPS>() + step == STEPS - 1) factors.cut(share);
  };
  wait_for_step(0);
  Factors factors[2] = {};
  load(factors[0], 0, 0);
  int last = 0;
#pragma unroll 1
  for (int from = 0; from < steps; from += 2 / ATOMS) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int step = from + i / ATOMS, share = i % ATOMS, stage = pipe.stage;
      if (step >= steps) break;
      const auto columns =
          wgmma_descriptor(shared + W_AT + (RESIDENT ? step : stage) * W_BYTES) + share * SHARE_BLOCKS * 2;
#pragma unroll
      for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < SHARE_BLOCKS; k++)
#pragma unroll
        for (int atom = 0; atom < ATOMS; atom++)
          wgmma(acc[atom], factors[i].v[atom][k], columns + k * 2, step + share + k != 0, T());
      wgmma_commit();
#pragma unroll
      for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
      // When this returns, the products before these have read their operands. Those of the next share come meanwhile.
      wgmma_wait<1>();
      factors[1 - i].fence();
      if (share == 0 && step > 0 && lane == 0) mbarrier_arrive(barriers.empty(last));
      last = stage;
      if (share + 1 < ATOMS) {
        load(factors[1 - i], step, share + 1);
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
  factors[0].fence();
  factors[1].fence();
  if (lane == 0) mbarrier_arrive(barriers.empty(last));
}
