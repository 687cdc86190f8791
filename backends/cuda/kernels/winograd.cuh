// Winograd's F(4x4, 3x3) in f32 multiply-adds: 36 products for 16 results of a filter and a channel, where a convolution has 144. Tiles of
// 6x6 pixels are transformed to 36 points (0, 1/sqrt(2), -1/sqrt(2), sqrt(2), -sqrt(2) and infinity, in both directions), at each of which
// TILE_F filters of TILES tiles are a matrix product, and its sums are transformed to 4x4 results. A launch before this one transforms
// filters to memory (launch 0).
//
// A warp multiplies at three points: halves of it 8x8 sums a lane at one each, and 8x4 of the third. Nobody else reads its filters, so
// that each warp copies its own into a ring of FILTER_STAGES stages of STEP_C channels. Patches of the image are copied to slots, from
// which warps take turns to transform them to a ring of IMAGE_STAGES stages for all, LEAD stages ahead; mbarriers say when a stage is
// full, and empty. Sums pass through shared memory to the results' transform, in Y_PARTS parts.
//
// needs macros: DEVICE, DYNAMIC_SHARED, KERNEL
// needs constants: CHANNELS, FILTERS, FILTER_STAGES, IN_H, IN_W, OUT_H, OUT_W, PAD_H, PAD_W, STEP_C, W_C, W_H, W_K, W_W, X_ALONG_C,
//   X_C, X_H, X_N, X_VECTOR, X_W, Y_ALONG_K, Y_PARTS, Y_VECTOR
// needs sizes: launch, scratch, tiles, y_c, y_h, y_n, y_w
// needs types: Args, Channel, Coord, T, idx
// needs functions: begin_grid, channel_of, finish_vector

constexpr int POINTS = 36, TILES = 16, TILE_F = 64, WARPS = 12, THREADS = WARPS * 32;
constexpr int IMAGE_STAGES = 4, LEAD = 2, SLOTS = LEAD + 2;
constexpr int TILES_H = (OUT_H + 3) / 4, TILES_W = (OUT_W + 3) / 4;
constexpr int FILTER_TILES = (FILTERS + TILE_F - 1) / TILE_F, STEPS = (CHANNELS + STEP_C - 1) / STEP_C;
// Warps that a stage's patches take, a patch a lane, and how many stages a warp has one of.
constexpr int TASKS = STEP_C * TILES / 32, PERIOD = WARPS / TASKS;
static_assert(STEP_C * TILES % 32 == 0 && WARPS % TASKS == 0 && SLOTS <= PERIOD && sizeof(T) == 4, "warps take turns");
// Numbers: of a warp's filters in a stage, from a channel's tiles at a point to the next one's, of a stage, and of a warp's slot.
constexpr int OWN = 3 * STEP_C * TILE_F, PITCH = X_ALONG_C && STEP_C == 4 ? TILES + 4 : TILES,
              STAGE = POINTS * STEP_C * PITCH, SLOT = POINTS * 32;
constexpr int IMAGE_AT = WARPS * FILTER_STAGES * OWN, SLOTS_AT = IMAGE_AT + IMAGE_STAGES * STAGE;
// Filters whose sums lie in shared memory at once, and from a filter's sums at a point to the next one's.
constexpr int PART_F = TILE_F / Y_PARTS, SUM_PITCH = Y_ALONG_K ? TILES + 4 : TILES;
// 1/sqrt(2) and sqrt(2).
constexpr float NEAR = 0.70710678118654752440f, FAR = 1.41421356237309504880f;

DEVICE unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
DEVICE void mbarrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
DEVICE void mbarrier_arrive(unsigned barrier) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(barrier) : "memory");
}
// Waits until the mbarrier's phase of this parity has completed.
DEVICE void mbarrier_wait(unsigned barrier, unsigned parity) {
#if __CUDA_ARCH__ >= 900
#define TEST "mbarrier.try_wait.parity.shared::cta.b64"
#else
#define TEST "mbarrier.test_wait.parity.shared.b64"
#endif
  asm volatile("{\n.reg .pred done;\nWAIT_%=:\n" TEST " done, [%0], %1;\n@!done bra WAIT_%=;\n}" ::"r"(barrier),
               "r"(parity)
               : "memory");
}

// Copies V numbers, or as many zeros.
template <int V> DEVICE void copy(unsigned to, const float* from, bool valid) {
  const int bytes = valid ? V * 4 : 0;
  if (V == 4) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(V * 4), "r"(bytes)
                 : "memory");
}
DEVICE void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for the copies before each of the last N `end_copies`.
template <int N> DEVICE void wait_for_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// Six neighbours at the six points.
DEVICE void to_points(float& x0, float& x1, float& x2, float& x3, float& x4, float& x5) {
  const float ea = fmaf(-2.f, x2, x4), oa = fmaf(-2.f, x1, x3), eb = fmaf(-.5f, x2, x4), ob = fmaf(-.5f, x1, x3);
  x0 = fmaf(-2.5f, x2, x0 + x4);
  x5 = fmaf(-2.5f, x3, x1 + x5);
  x1 = fmaf(NEAR, oa, ea);
  x2 = fmaf(-NEAR, oa, ea);
  x3 = fmaf(FAR, ob, eb);
  x4 = fmaf(-FAR, ob, eb);
}
// Three taps at the six points.
DEVICE void taps_to_points(float x0, float x1, float x2, float* y) {
  const float ea = fmaf(.5f, x2, x0) * (-1.f / 1.5f), oa = x1 * (-NEAR / 1.5f), eb = fmaf(2.f, x2, x0) * (1.f / 6.f),
              ob = x1 * (FAR / 6.f);
  y[0] = x0;
  y[1] = ea + oa;
  y[2] = ea - oa;
  y[3] = eb + ob;
  y[4] = eb - ob;
  y[5] = x2;
}
// Sums at the six points as four results.
DEVICE void to_results(const float* x, float* y, int step) {
  const float sa = x[1] + x[2], da = x[1] - x[2], sb = x[3] + x[4], db = x[3] - x[4];
  y[0] = x[0] + (sa + sb);
  y[step] = fmaf(FAR, db, NEAR * da);
  y[2 * step] = fmaf(2.f, sb, .5f * sa);
  y[3 * step] = fmaf(2.f * FAR, db, fmaf(.5f * NEAR, da, x[5]));
}

// Filters at the points, in the order in which warps copy them; zeros behind the last filter and the last channel.
DEVICE void prepare(const Args& args, float* to) {
  constexpr int ALL = FILTER_TILES * STEPS * STEP_C * TILE_F;
#pragma unroll 1
  for (int i = blockIdx.x * THREADS + threadIdx.x; i < ALL; i += gridDim.x * THREADS) {
    const int f = i % TILE_F, c = i / TILE_F % (STEPS * STEP_C), tile = i / TILE_F / (STEPS * STEP_C),
              k = tile * TILE_F + f;
    const float* const from = (const float*)args.op[0].p[0] + ((idx)k * W_K + c * W_C);
    float rows[3][6];
#pragma unroll
    for (int r = 0; r < 3; r++) {
      float taps[3];
#pragma unroll
      for (int q = 0; q < 3; q++) taps[q] = k < FILTERS && c < CHANNELS ? from[r * W_H + q * W_W] : 0.f;
      taps_to_points(taps[0], taps[1], taps[2], rows[r]);
    }
    float* const at = to + ((long long)(tile * STEPS + c / STEP_C) * POINTS * STEP_C + c % STEP_C) * TILE_F + f;
#pragma unroll
    for (int q = 0; q < 6; q++) {
      float column[6];
      taps_to_points(rows[0][q], rows[1][q], rows[2][q], column);
#pragma unroll
      for (int r = 0; r < 6; r++) at[(r * 6 + q) * STEP_C * TILE_F] = column[r];
    }
  }
}

// A tile: of which image, and where its patch begins.
struct Place {
  int n, h, w;
};
DEVICE Place place_of(int tile) {
  return {tile / (TILES_W * TILES_H), tile / TILES_W % TILES_H * 4, tile % TILES_W * 4};
}

// What a lane copies in all stages: from where its first channel's patch begins, and which parts of it are inside of the image. Of an image
// whose channels are neighbours a lane copies STEP_C channels of some pixels of a tile. Of others it copies four pixels of each of the
// patch's rows, and reads what lies left and right of these from its neighbours' copies; where it has none, or their tile is elsewhere, it
// copies these too.
struct Errand {
  int offset;
  unsigned inside;
};
constexpr int ROWS_OF_LANE = STEP_C == 4 ? 3 : 6, MIDDLE = 6, LEFT = 16, RIGHT = 24;
DEVICE unsigned bit(bool is_set, int at) { return (unsigned)is_set << at; }
DEVICE Errand errand_of(int first_tile, int tiles, int task, int lane) {
  constexpr int TILES_OF_TASK = 32 / STEP_C;
  const int tile = X_ALONG_C ? task * TILES_OF_TASK + lane % TILES_OF_TASK : lane % TILES;
  const Place at = place_of(first_tile + tile);
  const int row = at.h - PAD_H, column = at.w - PAD_W;
  const auto has_row = [&](int r) { return (unsigned)(row + r) < (unsigned)IN_H && first_tile + tile < tiles; };
  const auto has_column = [&](int q) { return (unsigned)(column + q) < (unsigned)IN_W; };
  Errand errand = {at.n * X_N + row * X_H + column * X_W, 0};
  if (X_ALONG_C) {
    const int part = lane / TILES_OF_TASK, r0 = STEP_C == 4 ? part / 2 * 3 : 0, q0 = part % 2 * 3;
    errand.offset += r0 * X_H + q0 * X_W;
#pragma unroll
    for (int i = 0; i < ROWS_OF_LANE * 3; i++) errand.inside |= bit(has_row(r0 + i / 3) && has_column(q0 + i % 3), i);
    return errand;
  }
  errand.offset += (lane / TILES + task * 2) * X_C;
  const bool left = (tile == 0 || at.w == 0) && has_column(0);
  const bool right = (tile == TILES - 1 || at.w == TILES_W * 4 - 4) && has_column(5);
#pragma unroll
  for (int r = 0; r < 6; r++)
    errand.inside |= bit(has_row(r), r) | bit(has_row(r) && left, LEFT + r) | bit(has_row(r) && right, RIGHT + r);
#pragma unroll
  for (int q = 0; q < 4; q++) errand.inside |= bit(has_column(1 + q), MIDDLE + q);
  return errand;
}

// Starts to copy a lane's part of a stage's patches to the warp's slot: pixels by pixels, of each the lanes' numbers; or rows by rows, of
// each four numbers a lane, one more left of these and one right.
DEVICE void copy_patch(const float* x, const Errand* errands, unsigned slot, int task, int stage, int lane) {
  const Errand errand = *errands;
  const float* from = x + (errand.offset + stage * STEP_C * X_C);
  // Keeps the compiler from adding the stage to each address.
  asm volatile("" : "+l"(from));
  unsigned inside = errand.inside;
  if (X_ALONG_C) {
    constexpr int TILES_OF_TASK = 32 / STEP_C;
    const int part = lane / TILES_OF_TASK, r0 = STEP_C == 4 ? part / 2 * 3 : 0, q0 = part % 2 * 3;
    const unsigned to = slot + ((r0 * 6 + q0) * 32 + lane % TILES_OF_TASK * STEP_C) * 4;
#pragma unroll
    for (int r = 0; r < ROWS_OF_LANE; r++)
#pragma unroll
      for (int q = 0; q < 3; q++)
#pragma unroll
        for (int c = 0; c < STEP_C; c += X_VECTOR)
          copy<X_VECTOR>(to + ((r * 6 + q) * 32 + c) * 4, from + r * X_H + q * X_W + c,
                         inside >> (r * 3 + q) & 1 && (CHANNELS % STEP_C == 0 || stage * STEP_C + c < CHANNELS));
    return;
  }
  if (CHANNELS % STEP_C != 0 && stage * STEP_C + task * 2 + lane / TILES >= CHANNELS) inside = 0;
#pragma unroll
  for (int r = 0; r < 6; r++)
#pragma unroll
    for (int q = 0; q < 4; q += X_VECTOR)
      copy<X_VECTOR>(slot + (r * 192 + lane * 4 + q) * 4, from + r * X_H + (1 + q) * X_W,
                     inside >> r & inside >> (MIDDLE + q) & 1);
  // Which lanes copy these does not change, so that others read the zeros that slots begin with.
  if (errand.inside >> LEFT & 63)
#pragma unroll
    for (int r = 0; r < 6; r++) copy<1>(slot + (r * 192 + 128 + lane) * 4, from + r * X_H, inside >> (LEFT + r) & 1);
  if (errand.inside >> RIGHT & 63)
#pragma unroll
    for (int r = 0; r < 6; r++)
      copy<1>(slot + (r * 192 + 160 + lane) * 4, from + r * X_H + 5 * X_W, inside >> (RIGHT + r) & 1);
}

// Transforms a lane's patch, whose left and right columns lie so far on in a row of the slot.
DEVICE void transform(const float* slot, int left, int right, float* to, int task, int lane) {
  float d[6][6];
#pragma unroll
  for (int r = 0; r < 6; r++) {
    if (X_ALONG_C) {
#pragma unroll
      for (int q = 0; q < 6; q++) d[r][q] = slot[(r * 6 + q) * 32 + lane];
    } else {
      const float4 middle = *(const float4*)(slot + r * 192 + lane * 4);
      d[r][0] = slot[r * 192 + left], d[r][5] = slot[r * 192 + right];
      d[r][1] = middle.x, d[r][2] = middle.y, d[r][3] = middle.z, d[r][4] = middle.w;
    }
  }
#pragma unroll
  for (int q = 0; q < 6; q++) to_points(d[0][q], d[1][q], d[2][q], d[3][q], d[4][q], d[5][q]);
  const int c = X_ALONG_C ? lane % STEP_C : task * 2 + lane / TILES;
  const int tile = X_ALONG_C ? task * (32 / STEP_C) + lane / STEP_C : lane % TILES;
  to += c * PITCH + tile;
#pragma unroll
  for (int r = 0; r < 6; r++) {
    to_points(d[r][0], d[r][1], d[r][2], d[r][3], d[r][4], d[r][5]);
#pragma unroll
    for (int q = 0; q < 6; q++) to[(r * 6 + q) * STEP_C * PITCH] = d[r][q];
  }
}

DEVICE void load4(float* to, unsigned from) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(from)
               : "memory");
}
// Adds products to a lane's sums, in an order in which neighbours share a factor: instructions read fewer registers so.
template <int N> DEVICE void multiply(float (&sums)[8][N], const float* filters, const float* tiles) {
#pragma unroll
  for (int i = 0; i < 8; i++)
#pragma unroll
    for (int j = 0; j < N; j++) {
      const int t = i % 2 ? N - 1 - j : j;
      asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(sums[i][t]) : "f"(filters[i]), "f"(tiles[t]));
    }
}

// Where four sums of neighbouring tiles lie, so that lanes that write or read side by side use all banks.
DEVICE int sums_at(int point, int f, int four) {
  const int row = Y_ALONG_K ? f : f % 4 * (PART_F / 4) + f / 4;
  return (point * PART_F + row) * SUM_PITCH + (Y_ALONG_K ? four : four ^ row / 2 % 2 * 2) * 4;
}

// Transforms the sums of a filter and a tile, and writes results.
DEVICE void write_results(const Args& args, const float* sums, int first_filter, int first_tile, int one, int lane) {
  constexpr int EIGHTS = PART_F / 8;
  const int f = Y_ALONG_K ? one % EIGHTS * 8 + lane % 8 : one % 4 + one / 4 * 8 + lane / TILES * 4;
  const int t = Y_ALONG_K ? one / EIGHTS * 4 + lane / 8 : lane % TILES;
  const int k = first_filter + f, tile = first_tile + t;
  if (k >= FILTERS || tile >= args.shape.tiles) return;
  const Channel channel = channel_of(args, k);
  const float* const from = sums + sums_at(0, f, t / 4) + t % 4;
  float half[4][6];
#pragma unroll
  for (int q = 0; q < 6; q++) {
    float column[6];
#pragma unroll
    for (int r = 0; r < 6; r++) column[r] = from[(r * 6 + q) * PART_F * SUM_PITCH];
    to_results(column, &half[0][q], 6);
  }
  const Place place = place_of(tile);
  Coord at;
  at.n = place.n, at.k = k;
#pragma unroll
  for (int r = 0; r < 4; r++) {
    if (OUT_H % 4 != 0 && place.h + r >= OUT_H) break;
    float results[4];
    to_results(half[r], results, 1);
#pragma unroll
    for (int q = 0; q < 4; q += Y_VECTOR) {
      if (OUT_W % 4 != 0 && place.w + q >= OUT_W) break;
      at.p = (place.h + r) * OUT_W + place.w + q;
      at.y = place.n * args.shape.y_n + k * args.shape.y_c + (place.h + r) * args.shape.y_h +
             (place.w + q) * args.shape.y_w;
      finish_vector<Y_VECTOR, false>(args, &channel, results + q, at);
    }
  }
}

DEVICE void convolve(const Args& args, const float* prepared) {
  DYNAMIC_SHARED(float, shared);
  __shared__ Errand errands[TASKS * 32];
  __shared__ __align__(8) unsigned long long barriers[2 * IMAGE_STAGES];
  const int thread = threadIdx.x, lane = thread % 32, warp = __shfl_sync(0xffffffffu, thread / 32, 0);
  const int filter_tile = blockIdx.x % FILTER_TILES, first_tile = blockIdx.x / FILTER_TILES * TILES;
  const unsigned full = shared_address(barriers), empty = full + 8 * IMAGE_STAGES;
  const int turn = warp / TASKS, task = warp % TASKS;
  const float* const x = (const float*)args.x;
  float* const slots = shared + SLOTS_AT;
  if (turn == 0) errands[thread] = errand_of(first_tile, args.shape.tiles, task, lane);
  if (thread == THREADS - 1) {
#pragma unroll
    for (int i = 0; i < IMAGE_STAGES; i++) mbarrier_init(full + 8 * i, TASKS), mbarrier_init(empty + 8 * i, WARPS);
  }
  if (!X_ALONG_C)
    for (int i = thread; i < SLOTS * TASKS * SLOT; i += THREADS) slots[i] = 0.f;
  __syncthreads();

  const auto slot_of = [&](int stage) { return slots + (stage % SLOTS * TASKS + task) * SLOT; };
  const auto copy_patches = [&](int stage) {
    copy_patch(x, errands + task * 32 + lane, shared_address(slot_of(stage)), task, stage, lane);
  };
  const float* const own = prepared + ((long long)filter_tile * STEPS * POINTS + 3 * warp) * STEP_C * TILE_F + lane * 4;
  const unsigned ring = shared_address(shared + warp * FILTER_STAGES * OWN);
  const auto copy_filters = [&](int stage, unsigned at) {
#pragma unroll
    for (int i = 0; i < OWN; i += 128)
      copy<4>(ring + at + (i + lane * 4) * 4, own + (long long)stage * POINTS * STEP_C * TILE_F + i, true);
  };
  if (turn < SLOTS && turn < STEPS) copy_patches(turn);
#pragma unroll
  for (int stage = 0; stage < FILTER_STAGES; stage++) {
    if (stage < STEPS) copy_filters(stage, stage * OWN * 4);
    end_copies();
  }

  int left = 0, right = 0;
  if (!X_ALONG_C) {
    const int tile = lane % TILES, w = (first_tile + tile) % TILES_W;
    left = tile == 0 || w == 0 ? 128 + lane : lane * 4 - 1;
    right = tile == TILES - 1 || w == TILES_W - 1 ? 160 + lane : lane * 4 + 4;
  }
  // A lane's eight filters and eight tiles: four from `a` and `b` on, and as many half a row on.
  const int a = lane / 2 % 8 * 4, b = lane % 2 * 4, half = lane / 16;
  unsigned of_filters = ring + (half * STEP_C * TILE_F + a) * 4, third_filters = ring + (2 * STEP_C * TILE_F + a) * 4;
  const unsigned image = shared_address(shared + IMAGE_AT);
  unsigned of_tiles = image + ((3 * warp + half) * STEP_C * PITCH + b) * 4;
  unsigned third_tiles = image + ((3 * warp + 2) * STEP_C * PITCH + b + half * 8) * 4;
  // Keeps the compiler from computing these anew for each stage, which takes more registers.
  asm volatile("" : "+r"(of_filters), "+r"(third_filters), "+r"(of_tiles), "+r"(third_tiles));
  float pair[8][8] = {}, third[8][4] = {};
  // The next stage that this warp transforms, and where filters of the stage lie that it multiplies.
  int mine = turn;
  unsigned filters_at = 0;
#pragma unroll 1
  for (int s = -LEAD; s < STEPS; s++) {
    const int ahead = s + LEAD;
    if (ahead == mine && ahead < STEPS) {
      const int at = ahead % IMAGE_STAGES;
      if (ahead >= IMAGE_STAGES) mbarrier_wait(empty + 8 * at, (ahead / IMAGE_STAGES & 1) ^ 1);
      wait_for_copies<1>();
      __syncwarp();
      transform(slot_of(ahead), left, right, shared + IMAGE_AT + at * STAGE, task, lane);
      __syncwarp();
      if (lane == 0) mbarrier_arrive(full + 8 * at);
      mine += PERIOD;
    }
    if (s < 0) continue;
    const int at = s % IMAGE_STAGES;
    wait_for_copies<FILTER_STAGES - 1>();
    __syncwarp();
    mbarrier_wait(full + 8 * at, s / IMAGE_STAGES & 1);
    const unsigned u = of_filters + filters_at, u3 = third_filters + filters_at;
    const unsigned v = of_tiles + at * STAGE * 4, v3 = third_tiles + at * STAGE * 4;
    float f[8], t[8], f3[8], t3[4];
    load4(f, u), load4(f + 4, u + 128), load4(t, v), load4(t + 4, v + 32);
#pragma unroll
    for (int c = 0; c < STEP_C; c++) {
      load4(f3, u3 + c * TILE_F * 4), load4(f3 + 4, u3 + c * TILE_F * 4 + 128), load4(t3, v3 + c * PITCH * 4);
      multiply(pair, f, t);
      if (c + 1 < STEP_C) {
        const unsigned next_u = u + (c + 1) * TILE_F * 4, next_v = v + (c + 1) * PITCH * 4;
        load4(f, next_u), load4(f + 4, next_u + 128), load4(t, next_v), load4(t + 4, next_v + 32);
      }
      multiply(third, f3, t3);
    }
    // All lanes have read the stage, whose filters are overwritten from here on.
    __syncwarp();
    if (lane == 0) mbarrier_arrive(empty + 8 * at);
    if (s + FILTER_STAGES < STEPS) copy_filters(s + FILTER_STAGES, filters_at);
    filters_at = filters_at == (FILTER_STAGES - 1) * OWN * 4 ? 0 : filters_at + OWN * 4;
    // The slot's last patch was transformed before the stage that was multiplied was full.
    if (s + SLOTS == mine && mine < STEPS) copy_patches(mine);
    end_copies();
  }

#pragma unroll 1
  for (int part = 0; part < Y_PARTS; part++) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8 / Y_PARTS; i++) {
      const int point = 3 * warp + half, four = b / 4, f = a + i % 4 + i / 4 * 32;
      *(float4*)(shared + sums_at(point, f, four)) = *(const float4*)pair[i];
      *(float4*)(shared + sums_at(point, f, four + 2)) = *(const float4*)(pair[i] + 4);
      *(float4*)(shared + sums_at(3 * warp + 2, f, four + 2 * half)) = *(const float4*)third[i];
    }
    __syncthreads();
#pragma unroll 1
    for (int one = warp; one < PART_F * TILES / 32; one += WARPS)
      write_results(args, shared, filter_tile * TILE_F + part * PART_F, first_tile, one, lane);
    // Those that wait for the next part.
#pragma unroll
    for (int i = 0; i < 8 - 8 / Y_PARTS; i++) {
#pragma unroll
      for (int j = 0; j < 8; j++) pair[i][j] = pair[i + 4][j];
#pragma unroll
      for (int j = 0; j < 4; j++) third[i][j] = third[i + 4][j];
    }
  }
}

KERNEL(THREADS, 1) {
  begin_grid();
  float* const prepared = (float*)args.shape.scratch;
  if (args.shape.launch == 0) prepare(args, prepared);
  else convolve(args, prepared);
}
