// Load::Gather, for images whose channels are not neighbours in memory: columns of the product are pixels, which all
// threads of the producer warpgroups gather element by element, one pixel a lane; rows are filters, which TMA loads;
// results are written along pixels. The depth runs over taps fastest, as it does in the filters.
//
// needs macros: DEVICE
// needs constants: CHANNELS, CHANNELS_AT, CHANNEL_STAGES, COLUMNS, DILATION_D, DILATION_H, DILATION_W, FILTERS, PAD_D,
//   PAD_H, PAD_W, PRODUCERS, RESIDENT, ROW, SPLIT, STAGES, STEPS, STRIDE_D, STRIDE_H, STRIDE_W, TABLE_AT, TABLE_BYTES,
//   TAPS, TAPS_D, TAPS_H, TAPS_W, TF32X3, TILE_K, TILE_P, W_AT, W_BYTES, X_BYTES, X_PART
// needs sizes: in_d, in_h, in_w, out_h, out_plane, out_w, pixels, x_c, x_d, x_h, x_n, x_w
// needs types: Args, Barriers, Channel, Column, Launch, PipelineState, Shape, T, Vector, bf16, f16
// needs functions: column_of, first_step, load_channels, low_word_of, mbarrier_arrive, mbarrier_expect_tx, mbarrier_wait,
//   part, shared_address, step_count, tile_number, tile_stride, tiles_of, tma_load_rows, wait_for_grids

constexpr int DEPTH = CHANNELS * TAPS;
static_assert(STEPS == (DEPTH + TILE_K - 1) / TILE_K && ROW == 128 && TAPS <= 32, "as the launch was planned");
constexpr int WARPS = PRODUCERS * 4;
// Elements of a chunk of 16 bytes. Warps beside each other along pixels, and chunks that a thread gathers in a step, and
// at once.
constexpr int CHUNK = 16 / (int)sizeof(T);
constexpr int PIXEL_WARPS = TILE_P / 32, CHUNKS = 8 * PIXEL_WARPS / WARPS;
constexpr int AT_ONCE = CHUNKS < 4 ? CHUNKS : 4, UNITS = CHUNKS / AT_ONCE;
static_assert(PIXEL_WARPS <= WARPS && WARPS % PIXEL_WARPS == 0, "a thread has one pixel");

// An element of the depth: its offset from the pixel's first tap in bytes, and its tap as a bit. The table repeats after
// TILE_K channels, which are TAPS slices of TILE_K elements.
struct alignas(8) TapOffset {
  unsigned offset, tap;
};
static_assert(TABLE_BYTES == TILE_K * TAPS * sizeof(TapOffset), "the table has room");

DEVICE TapOffset tap_offset(const Shape& s, int depth) {
  const int t = depth % TAPS, c = depth / TAPS;
  const int d = t / (TAPS_H * TAPS_W) * DILATION_D, h = t / TAPS_W % TAPS_H * DILATION_H, w = t % TAPS_W * DILATION_W;
  return {(unsigned)(c * s.x_c + d * s.x_d + h * s.x_h + w * s.x_w) * (unsigned)sizeof(T), 1u << t};
}

// A pixel: the offset of its first tap, and as bits the taps that lie in the image.
struct Source {
  int offset;
  unsigned taps;
};
// The bits of `each` for every tap of one dimension that lies in the image, SHIFT apart.
template <int COUNT, int DILATION, int SHIFT> DEVICE unsigned inside(int first, int length, unsigned each) {
  unsigned taps = 0;
#pragma unroll
  for (int t = 0; t < COUNT; t++) taps |= (unsigned)(first + t * DILATION) < (unsigned)length ? each << t * SHIFT : 0;
  return taps;
}
DEVICE Source source_of(const Shape& s, int m, int group) {
  const int n = m / s.out_plane, p = m % s.out_plane, row = p / s.out_w;
  const int d = row / s.out_h * STRIDE_D - PAD_D, h = row % s.out_h * STRIDE_H - PAD_H,
            w = p % s.out_w * STRIDE_W - PAD_W;
  Source source = {(int)(n * s.x_n + group * CHANNELS * s.x_c + d * s.x_d + h * s.x_h + w * s.x_w), 0};
  // The taps of a row, then those of each row of a plane, then of each plane.
  const unsigned row_taps = inside<TAPS_W, DILATION_W, 1>(w, s.in_w, 1);
  const unsigned plane_taps = inside<TAPS_H, DILATION_H, TAPS_W>(h, s.in_h, row_taps);
  source.taps = inside<TAPS_D, DILATION_D, TAPS_H * TAPS_W>(d, s.in_d, plane_taps);
  if (m >= s.pixels) source.taps = 0;
  return source;
}

// The word of a stage that elements are stored as: two of 16 bits, or one of f32 rounded to TF32. What that leaves has a
// word of its own with 3xTF32, `low_word_of`.
DEVICE unsigned word_of(const f16* v) { return v[0].bits | (unsigned)v[1].bits << 16; }
DEVICE unsigned word_of(const bf16* v) { return v[0].bits | (unsigned)v[1].bits << 16; }
DEVICE unsigned word_of(const float* v) {
  unsigned word;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(*v));
  return word;
}

// Elements on their way from the image to a stage: what one thread gathers at once.
struct Unit {
  T v[AT_ONCE][CHUNK];
};

// What a thread gathers next.
struct Gatherer {
  const Args& args;
  const TapOffset* table;
  int tile, step, part;
  // The pixel of this tile, the address at which the step's period of TILE_K channels begins, and the step's slice of it.
  Source source;
  const char* from;
  int slice;

  static DEVICE int warp() { return threadIdx.x / 32; }
  static DEVICE int row() { return warp() % PIXEL_WARPS * 32 + threadIdx.x % 32; }
  static DEVICE int first_chunk(int part) { return warp() / PIXEL_WARPS * CHUNKS + part * AT_ONCE; }

  DEVICE Gatherer(const Args& args, const TapOffset* table) : args(args), table(table) { start(tile_number()); }

  DEVICE void start(int at) {
    tile = at, step = first_step<STEPS>(), part = 0, slice = step % TAPS;
    source = source_of(args.shape, tile / COLUMNS * TILE_P + row(), column_of(tile).group);
    from = (const char*)((const T*)args.x + source.offset);
    if (SPLIT > 1) from += step / TAPS * TILE_K * (long long)channel_bytes();
  }

  DEVICE unsigned channel_bytes() const { return (unsigned)args.shape.x_c * (unsigned)sizeof(T); }

  DEVICE void load(Unit& unit) {
    if (tile >= tiles_of(args.shape)) return;
    const TapOffset* offsets = table + slice * TILE_K + first_chunk(part) * CHUNK;
#pragma unroll
    for (int c = 0; c < AT_ONCE; c++)
#pragma unroll
      for (int e = 0; e < CHUNK; e += 2) {
        const Vector<TapOffset, 2> pair = *(const Vector<TapOffset, 2>*)(offsets + c * CHUNK + e);
#pragma unroll
        for (int j = 0; j < 2; j++) {
          const int depth = (first_chunk(part) + c) * CHUNK + e + j;
          const TapOffset entry = TAPS == 1 ? TapOffset{(unsigned)depth * channel_bytes(), 1} : pair.at[j];
          unit.v[c][e + j] = {};
          if ((DEPTH % TILE_K == 0 || step * TILE_K + depth < DEPTH) && (source.taps & entry.tap))
            unit.v[c][e + j] = *(const T*)(from + entry.offset);
        }
      }
    if (++part < UNITS) return;
    part = 0;
    if (++slice == TAPS) slice = 0, from += TILE_K * (long long)channel_bytes();
    if (++step == first_step<STEPS>() + step_count<STEPS>()) start(tile + tile_stride());
  }
};

// Writes what was gathered into the stages, and signals that they are full.
struct StageWriter {
  const Launch& launch;
  char* memory;
  unsigned shared;
  Barriers barriers;
  PipelineState<STAGES> pipe;
  PipelineState<CHANNEL_STAGES> channel_pipe;
  int tile, step, part;

  DEVICE StageWriter(const Launch& launch, char* memory, const Barriers& barriers)
      : launch(launch),
        memory(memory),
        shared(shared_address(memory)),
        barriers(barriers),
        pipe(0),
        channel_pipe(0),
        tile(tile_number()),
        step(first_step<STEPS>()),
        part(0) {}

  DEVICE bool is_done() const { return tile >= tiles_of(launch.args.shape); }

  DEVICE void store(const Unit& unit) {
    const Column column = column_of(tile);
    if (step == first_step<STEPS>() && part == 0)
      load_channels(launch.args, (Channel*)(memory + CHANNELS_AT), barriers, channel_pipe, tile, threadIdx.x,
                    PRODUCERS * 128);
    if (part == 0) {
      mbarrier_wait(barriers.empty(pipe.stage), pipe.phase ^ 1);
      if (!RESIDENT && threadIdx.x == 0) {
        mbarrier_expect_tx(barriers.full(pipe.stage), W_BYTES);
        tma_load_rows(shared + W_AT + pipe.stage * W_BYTES, &launch.w, barriers.full(pipe.stage), step * TILE_K,
                      column.group * FILTERS + column.filter);
      }
    }
    const int row = Gatherer::row();
#pragma unroll
    for (int c = 0; c < AT_ONCE; c++) {
      const unsigned to =
          shared + pipe.stage * X_BYTES + row * ROW + ((Gatherer::first_chunk(part) + c ^ row & 7) << 4);
      unsigned w[4];
#pragma unroll
      for (int i = 0; i < 4; i++) w[i] = word_of(&unit.v[c][i * CHUNK / 4]);
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
                   : "memory");
      if (TF32X3) {
        unsigned low[4];
#pragma unroll
        for (int i = 0; i < 4; i++) low[i] = low_word_of(&unit.v[c][i * CHUNK / 4]);
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + X_PART), "r"(low[0]), "r"(low[1]),
                     "r"(low[2]), "r"(low[3])
                     : "memory");
      }
    }
    if (++part < UNITS) return;
    part = 0;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(barriers.full(pipe.stage));
    pipe.next();
    if (++step == first_step<STEPS>() + step_count<STEPS>()) step = first_step<STEPS>(), tile += tile_stride();
  }
};

DEVICE void produce(const Launch& launch, char* memory, const Barriers& barriers) {
  const Shape& s = launch.args.shape;
  if (tile_number() >= tiles_of(s)) return;
  TapOffset* table = (TapOffset*)(memory + TABLE_AT);
#pragma unroll 1
  for (int i = threadIdx.x; i < TILE_K * TAPS; i += PRODUCERS * 128) table[i] = tap_offset(s, i);
  asm volatile("bar.sync 1, %0;" ::"n"(PRODUCERS * 128) : "memory");
  wait_for_grids();
  if (RESIDENT && threadIdx.x == 0) {
    const Column column = column_of(tile_number());
    mbarrier_expect_tx(barriers.filters(), STEPS * W_BYTES);
#pragma unroll 1
    for (int step = 0; step < STEPS; step++)
      tma_load_rows(shared_address(memory) + W_AT + step * W_BYTES, &launch.w, barriers.filters(), step * TILE_K,
                    column.group * FILTERS + column.filter);
  }
  // One unit is in flight while the one before it is stored.
  Gatherer gatherer(launch.args, table);
  StageWriter writer(launch, memory, barriers);
  Unit one, other;
  gatherer.load(one);
#pragma unroll 1
  while (true) {
    gatherer.load(other);
    writer.store(one);
    if (writer.is_done()) break;
    gatherer.load(one);
    writer.store(other);
    if (writer.is_done()) break;
  }
}
