// Columns are pixels, which all threads of the FEEDERS groups gather element by element, a lane a pixel; rows are
// filters, which the copy engine brings; results go along pixels. For images whose channels are not neighbours. The
// depth runs over taps fastest, as in the filters.

constexpr int DEPTH = CHANNELS * TAPS;
static_assert(STEPS == (DEPTH + 63) / 64 && TILE_K == 64 && TAPS <= 32, "as the launch was planned");
constexpr int WARPS = FEEDERS * 4;
// Warps beside each other along pixels; chunks of eight elements that a thread gathers in a step, and at once.
constexpr int PIXEL_WARPS = TILE_P / 32, CHUNKS = 8 * PIXEL_WARPS / WARPS;
constexpr int AT_ONCE = CHUNKS < 4 ? CHUNKS : 4, UNITS = CHUNKS / AT_ONCE;
static_assert(PIXEL_WARPS <= WARPS && WARPS % PIXEL_WARPS == 0, "a thread has one pixel");

// An element of the depth: its distance from the pixel's first tap in bytes, and its tap as a bit. 64 channels are
// a period.
struct alignas(8) Reach {
  unsigned distance, tap;
};
static_assert(TABLE_BYTES == 64 * TAPS * sizeof(Reach), "the table has room");

DEVICE Reach reach_of(const Shape& s, int depth) {
  const int t = depth % TAPS, c = depth / TAPS;
  const int d = t / (TAPS_H * TAPS_W) * DILATION_D, h = t / TAPS_W % TAPS_H * DILATION_H, w = t % TAPS_W * DILATION_W;
  return {(unsigned)(c * s.x_c + d * s.x_d + h * s.x_h + w * s.x_w) * (unsigned)sizeof(T), 1u << t};
}

// A pixel: where its first tap lies, and the taps that lie in the image as bits.
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
  const int d = row / s.out_h * STRIDE_D - PAD_D, h = row % s.out_h * STRIDE_H - PAD_H, w = p % s.out_w * STRIDE_W - PAD_W;
  Source source = {(int)(n * s.x_n + group * CHANNELS * s.x_c + d * s.x_d + h * s.x_h + w * s.x_w), 0};
  // The taps of a row, then those of each row of a plane, then of each plane.
  const unsigned row_taps = inside<TAPS_W, DILATION_W, 1>(w, s.in_w, 1);
  const unsigned plane_taps = inside<TAPS_H, DILATION_H, TAPS_W>(h, s.in_h, row_taps);
  source.taps = inside<TAPS_D, DILATION_D, TAPS_H * TAPS_W>(d, s.in_d, plane_taps);
  if (m >= s.pixels) source.taps = 0;
  return source;
}

// Elements on their way from the image to a stage: what one thread gathers at once.
struct Unit {
  unsigned short v[AT_ONCE][8];
};

// What a thread gathers next.
struct Gatherer {
  const Args& args;
  const Reach* table;
  int tile, step, part;
  // Of the tile: the pixel, and where the step's period begins.
  Source source;
  const char* from;
  int turn;

  static DEVICE int warp() { return threadIdx.x / 32; }
  static DEVICE int row() { return warp() % PIXEL_WARPS * 32 + threadIdx.x % 32; }
  static DEVICE int first_chunk(int part) { return warp() / PIXEL_WARPS * CHUNKS + part * AT_ONCE; }

  DEVICE Gatherer(const Args& args, const Reach* table) : args(args), table(table) { start(tile_number()); }

  DEVICE void start(int at) {
    tile = at, step = first_step<STEPS>(), part = 0, turn = step % TAPS;
    source = source_of(args.shape, tile / COLUMNS * TILE_P + row(), column_of(tile).group);
    from = (const char*)((const T*)args.x + source.offset);
    if (SPLIT > 1) from += step / TAPS * 64 * (long long)channel_bytes();
  }

  DEVICE unsigned channel_bytes() const { return (unsigned)args.shape.x_c * (unsigned)sizeof(T); }

  DEVICE void load(Unit& unit) {
    if (tile >= tiles_of(args.shape)) return;
    const Reach* reaches = table + turn * 64 + first_chunk(part) * 8;
#pragma unroll
    for (int c = 0; c < AT_ONCE; c++)
#pragma unroll
      for (int e = 0; e < 8; e += 2) {
        const Vector<Reach, 2> pair = *(const Vector<Reach, 2>*)(reaches + c * 8 + e);
#pragma unroll
        for (int j = 0; j < 2; j++) {
          const int depth = (first_chunk(part) + c) * 8 + e + j;
          const Reach reach = TAPS == 1 ? Reach{(unsigned)depth * channel_bytes(), 1} : pair.at[j];
          unit.v[c][e + j] = 0;
          if ((DEPTH % 64 == 0 || step * 64 + depth < DEPTH) && (source.taps & reach.tap))
            unit.v[c][e + j] = ((const T*)(from + reach.distance))->bits;
        }
      }
    if (++part < UNITS) return;
    part = 0;
    if (++turn == TAPS) turn = 0, from += 64 * (long long)channel_bytes();
    if (++step == first_step<STEPS>() + step_count<STEPS>()) start(tile + tile_stride());
  }
};

// Where what was gathered goes next.
struct Filler {
  const Launch& launch;
  char* memory;
  unsigned shared;
  Barriers barriers;
  Ring<STAGES> ring;
  Ring<BUFFERS> buffer;
  int tile, step, part;

  DEVICE Filler(const Launch& launch, char* memory, const Barriers& barriers)
      : launch(launch), memory(memory), shared(shared_address(memory)), barriers(barriers), ring(0), buffer(0),
        tile(tile_number()), step(first_step<STEPS>()), part(0) {}

  DEVICE bool is_done() const { return tile >= tiles_of(launch.args.shape); }

  DEVICE void store(const Unit& unit) {
    const Column column = column_of(tile);
    if (step == first_step<STEPS>() && part == 0)
      feed_channels(launch.args, (Channel*)(memory + CHANNELS_AT), barriers, buffer, tile, threadIdx.x, FEEDERS * 128);
    if (part == 0) {
      barrier_wait(barriers.empty(ring.at), ring.parity ^ 1);
      if (!RESIDENT && threadIdx.x == 0) {
        barrier_expect(barriers.full(ring.at), W_BYTES);
        copy_rows(shared + W_AT + ring.at * W_BYTES, &launch.w, barriers.full(ring.at), step * 64,
                  column.group * FILTERS + column.filter);
      }
    }
    const int row = Gatherer::row();
#pragma unroll
    for (int c = 0; c < AT_ONCE; c++) {
      const unsigned to = shared + ring.at * X_BYTES + row * ROW + ((Gatherer::first_chunk(part) + c ^ row & 7) << 4);
      unsigned w[4];
#pragma unroll
      for (int i = 0; i < 4; i++) w[i] = unit.v[c][2 * i] | (unsigned)unit.v[c][2 * i + 1] << 16;
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
    }
    if (++part < UNITS) return;
    part = 0;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(barriers.full(ring.at));
    ring.next();
    if (++step == first_step<STEPS>() + step_count<STEPS>()) step = first_step<STEPS>(), tile += tile_stride();
  }
};

DEVICE void feed(const Launch& launch, char* memory, const Barriers& barriers) {
  const Shape& s = launch.args.shape;
  if (tile_number() >= tiles_of(s)) return;
  Reach* table = (Reach*)(memory + TABLE_AT);
#pragma unroll 1
  for (int i = threadIdx.x; i < 64 * TAPS; i += FEEDERS * 128) table[i] = reach_of(s, i);
  asm volatile("bar.sync 1, %0;" ::"n"(FEEDERS * 128) : "memory");
  if (RESIDENT && threadIdx.x == 0) {
    const Column column = column_of(tile_number());
    barrier_expect(barriers.filters(), STEPS * W_BYTES);
#pragma unroll 1
    for (int step = 0; step < STEPS; step++)
      copy_rows(shared_address(memory) + W_AT + step * W_BYTES, &launch.w, barriers.filters(), step * 64,
                column.group * FILTERS + column.filter);
  }
  // One unit is on its way while the one before it is stored.
  Gatherer gatherer(launch.args, table);
  Filler filler(launch, memory, barriers);
  Unit one, other;
  gatherer.load(one);
#pragma unroll 1
  while (true) {
    gatherer.load(other);
    filler.store(one);
    if (filler.is_done()) break;
    gatherer.load(one);
    filler.store(other);
    if (filler.is_done()) break;
  }
}

template <bool PLAIN>
DEVICE void finish_sums(Args args, const float (&sums)[BLOCKS][WIDTH / 2], float* part, const Channel* channels,
                        int tile) {
  if (PLAIN) make_plain(args);
  const Shape& s = args.shape;
  const Column column = column_of(tile);
  const int lane = threadIdx.x % 32, consumer = (threadIdx.x / 128 - FEEDERS) % CONSUMERS;
  const int first_filter = consumer * ROWS + threadIdx.x / 32 % 4 * 16;
  const unsigned to = part_of_lane(part);
  // A part's vectors, row by row; a lane's lie in few places. It takes some of them together, those of DOWN rows.
  constexpr int VECTORS = PART / Y_VECTOR, PLACES = VECTORS > 32 ? VECTORS / 32 : 1;
  constexpr int TOGETHER = VECTORS < 16 ? VECTORS / 4 : 4, DOWN = TOGETHER * 32 / VECTORS;
  static_assert(8 % DOWN == 0 && TOGETHER % PLACES == 0, "a lane's vectors come in whole parts");
  const float* from = part + part_at(lane / VECTORS, lane % VECTORS * Y_VECTOR);
#pragma unroll 1
  for (int along = 0; along < PARTS_ALONG; along++) {
    const int first_pixel = tile / COLUMNS * TILE_P + along * PART;
    Place places[PLACES];
    bool inside[PLACES];
#pragma unroll
    for (int i = 0; i < PLACES; i++) {
      const int pixel = first_pixel + (i * 32 + lane) % VECTORS * Y_VECTOR;
      inside[i] = pixel < s.pixels;
      places[i] = place_of(s, pixel, 0);
    }
#pragma unroll 1
    for (int down = 0; down < PARTS_DOWN; down++) {
      __syncwarp();
      hand_over<0>(sums, to, along * PARTS_DOWN + down);
      __syncwarp();
      const int below = first_filter + down / 2 * 64 + down % 2 * 8 + lane / VECTORS;
#pragma unroll 1
      for (int top = 0; top < 8; top += DOWN) {
        float out[TOGETHER][Y_VECTOR];
        idx y[TOGETHER];
        bool writes[TOGETHER];
        // What lies beyond the output is computed too, without a branch, where that reads nothing.
#pragma unroll
        for (int j = 0; j < TOGETHER; j++) {
          const int row = j * 32 / VECTORS, column_of_row = j * 32 % VECTORS, f = below + top + row;
          Place at = places[j % PLACES];
          at.k = column.group * FILTERS + column.filter + f;
          y[j] = at.y += at.k * s.y_c;
          writes[j] = inside[j % PLACES] && (FILTERS % TILE_F == 0 || column.filter + f < FILTERS);
          if ((!PLAIN || READS_PLACES) && !writes[j]) continue;
          float v[Y_VECTOR];
#pragma unroll
          for (int e = 0; e < Y_VECTOR; e += 4) {
            constexpr int SOME = Y_VECTOR < 4 ? Y_VECTOR : 4;
            const float* at_part = from + top * PITCH + part_at(row, column_of_row * Y_VECTOR + e);
            const Vector<float, SOME> some = *(const Vector<float, SOME>*)at_part;
#pragma unroll
            for (int i = 0; i < SOME; i++) v[e + i] = some.at[i];
          }
          const Channel channel = channels[f];
          chain_vector<Y_VECTOR, false>(args, &channel, v, at, out[j]);
        }
#pragma unroll
        for (int j = 0; j < TOGETHER; j++)
          if (writes[j]) write_vector<Y_VECTOR>(args, y[j], out[j]);
      }
    }
  }
}
