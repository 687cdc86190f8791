// Depthwise convolution: MULTIPLIER filters see one channel each, so the work is to read the image once and to
// write the result. A thread has a tile of TILE_H x TILE_W outputs, each of V neighbouring filters (channels last),
// which are all those of their channels or all of one channel, or for one filter (channels first). It walks down the
// image's rows below its tile, reads the columns of a row once, while it adds what those of the row before give to
// every sum, and finishes a row of the tile as soon as it is complete. A block's filters are in shared memory; it
// takes the same positions of several images.
//
// needs macros: AT_ONCE, DEVICE, KEEP_ORDER, KERNEL, UNROLLED
// needs constants: BLOCKS, CHANNELS_LAST, CHANNEL_THREADS, DILATION_H, DILATION_W, MULTIPLIER, PAD_H, PAD_W, PLANES,
//   ROWS, ROWS_UNROLLED, STEP_H, STEP_W, STRIDE_H, STRIDE_W, STRIPS, TAPS_H, TAPS_W, THREADS, TILE_H, TILE_W, V_MAX,
//   X_C, X_VECTOR, X_W, Y_C, Y_VECTOR, Y_W
// needs sizes: block_columns, block_rows, block_strips, image_step, images, in_h, in_w, out_h, out_k, out_w, w_h, w_k,
//   w_w, x_h, x_n, y_h, y_n
// needs types: Args, Channel, Coord, Packed, Shape, T, Unsigned, Vector, idx
// needs functions: begin_grid, bring, channel_of, finish_vector, is_aligned, to_float

// Filters of a block.
constexpr int FILTERS = CHANNELS_LAST ? CHANNEL_THREADS * V_MAX : PLANES;
constexpr int TAPS = TAPS_H * TAPS_W;
// Channels of so many filters of a thread.
DEVICE constexpr int channels_of(int filters) { return filters > MULTIPLIER ? filters / MULTIPLIER : 1; }
// Rows and columns of the image, at steps that meet every tap of every output of a tile: the tile's receptive extent.
constexpr int IN_ROWS = ((TILE_H - 1) * STRIDE_H + (TAPS_H - 1) * DILATION_H) / STEP_H + 1;
constexpr int IN_COLUMNS = ((TILE_W - 1) * STRIDE_W + (TAPS_W - 1) * DILATION_W) / STEP_W + 1;

// What a thread computes: the image, the first output's row and column, the image's channel, the filter, and that filter
// among the block's.
struct Spot {
  idx n, h, w, c, k;
  int filter;
};

template <int N> DEVICE void load_floats(const float* from, float* v) {
  constexpr int PART = N < 4 ? N : 4;
#pragma unroll
  for (int i = 0; i < N; i += PART) {
    const Vector<float, PART> part = *(const Vector<float, PART>*)(from + i);
#pragma unroll
    for (int j = 0; j < PART; j++) v[i + j] = part.at[j];
  }
}

// The columns of a row, from that of the thread's first tap: V channels of each, or X columns of one channel at a
// time where they lie at a multiple of their size, which begins behind the padding.
template <int V, int X> struct Columns {
  Packed<V> each[IN_COLUMNS];
  Packed<X> core[IN_COLUMNS / X + 1];

  static DEVICE constexpr bool in_core(int c) { return X > 1 && c >= PAD_W && c - (c - PAD_W) % X + X <= IN_COLUMNS; }
  DEVICE void load(const Shape& s, const T* row, idx first, bool inside) {
#pragma unroll
    for (int c = 0; c < IN_COLUMNS; c++) {
      const bool there = inside && (Unsigned)(first + c * STEP_W) < (Unsigned)s.in_w;
      if (in_core(c)) {
        if ((c - PAD_W) % X != 0) continue;
        core[(c - PAD_W) / X] = {};
        if (there) core[(c - PAD_W) / X] = *(const Packed<X>*)(row + c);
      } else {
        each[c] = {};
        if (there) each[c] = *(const Packed<V>*)(row + (idx)c * STEP_W * X_W);
      }
    }
  }
  DEVICE void widen(float* v) const {
#pragma unroll
    for (int c = 0; c < IN_COLUMNS; c++) {
#pragma unroll
      for (int i = 0; i < V; i++) v[c * V + i] = in_core(c) ? core[(c - PAD_W) / X].at((c - PAD_W) % X) : each[c].at(i);
    }
  }
};

// The epilogue of one row of a tile, Y outputs at a time.
template <int V, int Y>
DEVICE void finish_row(const Args& args, const Spot& spot, const Channel* channel, int th, float (&acc)[TILE_W][V]) {
  const Shape& s = args.shape;
  const idx h = spot.h + th;
  if (h >= s.out_h) return;
#pragma unroll
  for (int tw = 0; tw < TILE_W; tw += Y) {
    const idx w = spot.w + tw;
    if (w >= s.out_w) break;
    const Coord at = {spot.n * s.y_n + spot.k * Y_C + h * s.y_h + w * Y_W, spot.n, spot.k, h * s.out_w + w};
    if (CHANNELS_LAST) {
      finish_vector<V, true>(args, channel, acc[tw], at);
    } else {
      float v[Y];
#pragma unroll
      for (int i = 0; i < Y; i++) v[i] = acc[tw + i][0];
      finish_vector<Y, false>(args, channel, v, at);
    }
  }
}

// The tile of one spot for V filters, UNROLL rows of the image a round.
template <int V, int X, int Y, int UNROLL>
DEVICE void tile(const Args& args, const Spot& spot, const float* weights, const Channel* table) {
  constexpr int I = channels_of(V);
  const Shape& s = args.shape;
  const idx first_h = spot.h * STRIDE_H - PAD_H, first_w = spot.w * STRIDE_W - PAD_W;
  const T* corner = (const T*)args.x + (spot.n * s.x_n + spot.c * X_C + first_h * s.x_h + first_w * X_W);
  const auto load = [&](Columns<I, X>& columns, int r) {
    const idx h = first_h + r * STEP_H;
    columns.load(s, corner + (idx)r * STEP_H * s.x_h, first_w, (Unsigned)h < (Unsigned)s.in_h);
  };
  Channel channel[V];
#pragma unroll
  for (int i = 0; i < V; i++) channel[i] = table[spot.filter + i];
  float acc[TILE_H][TILE_W][V] = {};
  Columns<I, X> next;
  load(next, 0);
#pragma unroll UNROLL
  for (int r = 0; r < IN_ROWS; r++) {
    float in[IN_COLUMNS * I];
    next.widen(in);
    if (r + 1 < IN_ROWS) load(next, r + 1);
    KEEP_ORDER;
#pragma unroll
    for (int th = 0; th < TILE_H; th++) {
      const int below = r * STEP_H - th * STRIDE_H;
      if (below < 0 || below % DILATION_H != 0 || below / DILATION_H >= TAPS_H) continue;
#pragma unroll
      for (int t = 0; t < TAPS_W; t++) {
        float weight[V];
        load_floats<V>(weights + (below / DILATION_H * TAPS_W + t) * FILTERS + spot.filter, weight);
#pragma unroll
        for (int tw = 0; tw < TILE_W; tw++) {
          const int c = (tw * STRIDE_W + t * DILATION_W) / STEP_W;
#pragma unroll
          for (int i = 0; i < V; i++) acc[th][tw][i] = fmaf(in[c * I + i / MULTIPLIER], weight[i], acc[th][tw][i]);
        }
      }
      if (below == (TAPS_H - 1) * DILATION_H) finish_row<V, Y>(args, spot, channel, th, acc[th]);
    }
  }
}

// Bytes of shared memory.
#define SHARED ((TAPS * FILTERS + 3) / 4 * 16 + FILTERS * (int)sizeof(Channel))

KERNEL(THREADS, AT_ONCE(BLOCKS, SHARED)) {
  begin_grid();
  __shared__ Vector<float, 4> storage[(TAPS * FILTERS + 3) / 4];
  float* weights = (float*)storage;
  __shared__ Channel table[FILTERS];
  const Shape& s = args.shape;
  // Blocks beside each other have different channels of the same positions.
  const idx rest = s.block_columns.divide(blockIdx.x), column = blockIdx.x - rest * s.block_columns.value;
  const idx rows = s.block_strips.divide(rest), strips = rest - rows * s.block_strips.value;
  const idx images = s.block_rows.divide(rows);
  const idx first_k = column * FILTERS;
  bring<TAPS * FILTERS, THREADS, 8>(
      [&](int i) {
        const int t = i % TAPS;
        const idx k = first_k + i / TAPS < s.out_k ? first_k + i / TAPS : s.out_k - 1;
        return ((const T*)args.op[0].p[0])[k * s.w_k + t / TAPS_W * s.w_h + t % TAPS_W * s.w_w];
      },
      [&](int i, T weight) { weights[i % TAPS * FILTERS + i / TAPS] = to_float(weight); });
#pragma unroll 1
  for (int j = threadIdx.x; j < FILTERS && first_k + j < s.out_k; j += THREADS)
    table[j] = channel_of(args, first_k + j);
  __syncthreads();

  const int position = CHANNELS_LAST ? threadIdx.x / CHANNEL_THREADS : threadIdx.x, other = position / (STRIPS * ROWS);
  Spot spot;
  spot.h = ((rows - images * s.block_rows.value) * ROWS + position / STRIPS % ROWS) * TILE_H;
  spot.w = (strips * STRIPS + position % STRIPS) * TILE_W;
  if (CHANNELS_LAST) {
    spot.n = images * PLANES + other;
    spot.filter = threadIdx.x % CHANNEL_THREADS * V_MAX;
  } else {
    spot.n = images;
    spot.filter = other;
  }
  spot.k = first_k + spot.filter;
  spot.c = spot.k / MULTIPLIER;
  if (spot.h >= s.out_h || spot.w >= s.out_w || spot.k >= s.out_k) return;
  constexpr int X_BYTES = (CHANNELS_LAST ? channels_of(V_MAX) : X_VECTOR) * (int)sizeof(T);
  constexpr int Y_BYTES = (CHANNELS_LAST ? V_MAX : Y_VECTOR) * (int)sizeof(T);
  const bool aligned = is_aligned(args.x, X_BYTES) && is_aligned(args.y, Y_BYTES);
#pragma unroll 1
  for (; spot.n < s.images; spot.n += s.image_step) {
    if (aligned) {
      tile<V_MAX, X_VECTOR, Y_VECTOR, UNROLLED(ROWS_UNROLLED, TAPS)>(args, spot, weights, table);
      continue;
    }
    // Element by element, and in as few instructions: they would be most of the compiler's work.
    Spot one = spot;
#pragma unroll 1
    for (int v = 0; v < V_MAX; v++) {
      tile<1, 1, 1, 1>(args, one, weights, table);
      one.filter++;
      one.c = ++one.k / MULTIPLIER;
    }
  }
}
