// Convolution of narrow groups, few filters or few channels, where reading the image is most of the work. A block
// computes TILE_H x TILE_W outputs of TILE_F filters of each of TILE_G groups. It keeps in shared memory the window of
// the image that is these outputs' receptive field, halo included: each element is read once, whatever the number of
// taps. It keeps its filters too, and is persistent: it walks over tiles.
//
// A group's channels lie in the window as quads of four, padded with zeros; the depth of a product is taps times
// quads. Products are of one group's channels alone: whatever is in another's, also what is not finite, stays there.
// The text behind this one multiplies: it fills the filters' part of shared memory and leaves f32 accumulators in it, or, where it
// is DIRECT, writes the results from where they are summed.
//
// needs macros: DEVICE
// needs constants: ACC_PITCH, COPIES_ASYNC, CHANNELS, DILATION_D, DILATION_H, DILATION_W, FILTERS, GROUPS, ITEM_F,
//   ITEM_P, OFFSETS, OFFSETS_AT, OPS, OUTSIDE_D, PAD_D, PAD_H, PAD_W, SHARED, STRIDE_D, STRIDE_H, STRIDE_W, TAPS_D,
//   TAPS_H, TAPS_W, THREADS, TILE_F, TILE_G, TILE_H, TILE_P, TILE_W, WINDOW_D, WINDOW_H, WINDOW_W, W_C, W_D, W_H, W_K,
//   W_W, X_PITCH, X_ROW, X_VECTOR, Y_ALONG_K
// needs sizes: in_d, in_h, in_w, out_d, out_h, out_w, tiles_h, tiles_w, x_c, x_d, x_h, x_n, x_w, y_c, y_d, y_h, y_n,
//   y_w
// needs types: Args, Channel, Coord, Shape, T, Vector, idx
// needs functions: finish_vector, from_float

constexpr int TAPS = TAPS_D * TAPS_H * TAPS_W;
constexpr int QUADS = (CHANNELS + 3) / 4, DEPTH = TAPS * QUADS;
constexpr int QUAD_BYTES = 4 * (int)sizeof(T);
constexpr int COLUMNS = TILE_G * TILE_F;
// A warp's item is ITEM_P pixels, which are the same for a warp in every tile, times ITEM_F filters of one group.
constexpr int WARPS = THREADS / 32;
constexpr int PARTS_P = TILE_P / ITEM_P, PARTS_F = (TILE_F + ITEM_F - 1) / ITEM_F;
constexpr int ITEMS = TILE_G * PARTS_F, ITEMS_AT_ONCE = WARPS / PARTS_P;
static_assert(WARPS % PARTS_P == 0, "a warp has one part of the pixels");
constexpr int FILTER_TILES = (FILTERS + TILE_F - 1) / TILE_F;
constexpr int BLOCK_COLUMNS = (GROUPS + TILE_G - 1) / TILE_G * FILTER_TILES;
constexpr int WINDOW_P = WINDOW_D * WINDOW_H * WINDOW_W;
static_assert(OFFSETS_AT + OFFSETS * 4 == SHARED, "as the launch was planned");
static_assert(FILTER_TILES == 1 || TILE_G == 1, "filters of a block follow each other");

// The block's first group, the first of its filters in the group, and what follows of both: filters of all groups.
struct Column {
  int group, filter;
  DEVICE int first() const { return group * FILTERS + filter; }
  DEVICE int count() const {
    const int left = FILTER_TILES > 1 ? FILTERS - filter : (GROUPS - group) * FILTERS;
    return left < COLUMNS ? left : COLUMNS;
  }
};

// The first output of a tile, and its image.
struct Corner {
  int n, d, h, w;
};
DEVICE Corner corner_of(const Shape& s, int tile) {
  const int w = tile % s.tiles_w, rows = tile / s.tiles_w;
  const int h = rows % s.tiles_h, planes = rows / s.tiles_h;
  return {planes / (int)s.out_d, planes % (int)s.out_d, h * TILE_H, w * TILE_W};
}

DEVICE T zero() { return from_float<T>(0.f); }
typedef Vector<T, 4> Quad;

// An element of an operand as the products take it; the text behind this one may round.
DEVICE T operand_of(T v);

// A pixel of the window: its offset from the first one in the image, and its row and column in the window.
struct alignas(8) Spot {
  int distance;
  unsigned short h, w;
};
DEVICE Spot spot_of(const Shape& s, int pixel) {
  const int d = pixel / (WINDOW_H * WINDOW_W), h = pixel / WINDOW_W % WINDOW_H, w = pixel % WINDOW_W;
  return {(int)(d * s.x_d + h * s.x_h + w * s.x_w), (unsigned short)h, (unsigned short)w};
}

// Copies X_VECTOR elements into shared memory, or zeros where they are not `inside`; what comes later is waited for by
// `wait_for_copies`. Only where COPIES_ASYNC says that the text behind this one has these.
DEVICE void copy_async(char* to, const T* from, bool inside);
DEVICE void wait_for_copies();

// The window of a tile on its way into shared memory.
struct Loader {
  const Args& args;
  char* const window;
  const Spot* const spots;
  const int group;
  // Of the tile: the coordinates in the image of the window's first pixel, and its address if it were in memory.
  int d, h, w;
  const T* image;

  DEVICE Loader(const Args& args, char* window, const Spot* spots, int group)
      : args(args), window(window), spots(spots), group(group) {}

  // Whether a pixel of the window lies in the image; its address there, and its offset in the window.
  DEVICE bool find(int pixel, const T*& from, int& to) const {
    const Shape& s = args.shape;
    const Spot spot = spots[pixel];
    const int pd = WINDOW_D == 1 ? 0 : pixel / (WINDOW_H * WINDOW_W);
    from = image + spot.distance;
    to = (pd * WINDOW_H + spot.h) * X_ROW + spot.w * X_PITCH;
    return (!OUTSIDE_D || (unsigned)(d + pd) < (unsigned)s.in_d) && (unsigned)(h + spot.h) < (unsigned)s.in_h &&
           (unsigned)(w + spot.w) < (unsigned)s.in_w;
  }

  // X_VECTOR channels at a time, neighbours along the channels.
  template <int TOGETHER> DEVICE void load_vectors() const {
    constexpr int ACROSS = TILE_G * CHANNELS / X_VECTOR, LOADS = WINDOW_P * ACROSS;
#pragma unroll 1
    for (int first = threadIdx.x; first < LOADS; first += THREADS * TOGETHER) {
      Vector<T, X_VECTOR> v[TOGETHER];
      int to[TOGETHER];
#pragma unroll
      for (int i = 0; i < TOGETHER; i++) {
        const int load = first + i * THREADS, across = load % ACROSS;
        if (load >= LOADS) break;
        const T* from;
        bool inside = find(load / ACROSS, from, to[i]);
        if (GROUPS % TILE_G != 0) inside = inside && group * CHANNELS + across * X_VECTOR < GROUPS * CHANNELS;
        to[i] += across * X_VECTOR * (int)sizeof(T);
        if constexpr (COPIES_ASYNC) {
          copy_async(window + to[i], from + across * X_VECTOR, inside);
        } else {
#pragma unroll
          for (int e = 0; e < X_VECTOR; e++) v[i].at[e] = zero();
          if (inside) v[i] = *(const Vector<T, X_VECTOR>*)(from + across * X_VECTOR);
        }
      }
      if constexpr (!COPIES_ASYNC) {
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
          if (first + i * THREADS >= LOADS) break;
#pragma unroll
          for (int q = 0; q < X_VECTOR / 4; q++) {
            Quad quad;
#pragma unroll
            for (int e = 0; e < 4; e++) quad.at[e] = operand_of(v[i].at[q * 4 + e]);
            *(Quad*)(window + to[i] + q * QUAD_BYTES) = quad;
          }
        }
      }
    }
  }

  // A quad element by element, neighbours along pixels.
  template <int TOGETHER> DEVICE void load_elements() const {
    constexpr int LOADS = WINDOW_P * TILE_G * QUADS;
    const int x_c = args.shape.x_c;
#pragma unroll 1
    for (int first = threadIdx.x; first < LOADS; first += THREADS * TOGETHER) {
      Quad v[TOGETHER];
      int to[TOGETHER];
#pragma unroll
      for (int i = 0; i < TOGETHER; i++) {
        const int load = first + i * THREADS, across = load / WINDOW_P;
#pragma unroll
        for (int e = 0; e < 4; e++) v[i].at[e] = zero();
        if (load >= LOADS) break;
        const int g = across / QUADS, c = across % QUADS * 4;
        const T* from;
        bool inside = find(load % WINDOW_P, from, to[i]);
        if (GROUPS % TILE_G != 0) inside = inside && group + g < GROUPS;
        to[i] += across * QUAD_BYTES;
        from += (g * CHANNELS + c) * x_c;
        if (inside)
#pragma unroll
          for (int e = 0; e < 4; e++)
            if (CHANNELS % 4 == 0 || c + e < CHANNELS) v[i].at[e] = from[e * x_c];
      }
#pragma unroll
      for (int i = 0; i < TOGETHER; i++) {
        if (first + i * THREADS >= LOADS) break;
#pragma unroll
        for (int e = 0; e < 4; e++) v[i].at[e] = operand_of(v[i].at[e]);
        *(Quad*)(window + to[i]) = v[i];
      }
    }
  }

  DEVICE void load(const Corner& corner, bool aligned) {
    const Shape& s = args.shape;
    d = corner.d * STRIDE_D - PAD_D, h = corner.h * STRIDE_H - PAD_H, w = corner.w * STRIDE_W - PAD_W;
    image = (const T*)args.x + (corner.n * s.x_n + group * CHANNELS * s.x_c + d * s.x_d + h * s.x_h + w * s.x_w);
    if constexpr (X_VECTOR > 1) {
      if (aligned) return load_vectors<4>();
    }
    load_elements<(X_VECTOR > 1 ? 1 : 4)>();
  }
};

// Four channels of a filter at a position along the depth; zeros beyond the block's filters, and beyond the depth.
DEVICE Quad filter_quad(const Args& args, const Column& column, int group, int filter, int q) {
  const int tap = q / QUADS, c = q % QUADS * 4;
  const bool inside = q < DEPTH && filter < TILE_F && column.filter + filter < FILTERS && column.group + group < GROUPS;
  // Instead of what lies outside the first element is read, and not used: a read with a condition waits for those before it.
  const T* const from = (const T*)args.op[0].p[0] +
                        (inside ? ((column.group + group) * FILTERS + column.filter + filter) * W_K + c * W_C +
                                      tap / (TAPS_H * TAPS_W) * W_D + tap / TAPS_W % TAPS_H * W_H + tap % TAPS_W * W_W
                                : 0);
  Quad quad;
#pragma unroll
  for (int e = 0; e < 4; e++) {
    const bool is_channel = CHANNELS % 4 == 0 || c + e < CHANNELS;
    const T element = operand_of(from[inside && is_channel ? e * W_C : 0]);
    quad.at[e] = inside && is_channel ? element : zero();
  }
  return quad;
}

// The offset in the window of the quad at a position along the depth, from a pixel's first tap and its group's first
// channel.
DEVICE int offset_of(int q) {
  const int tap = q / QUADS;
  const int d = tap / (TAPS_H * TAPS_W) * DILATION_D, h = tap / TAPS_W % TAPS_H * DILATION_H,
            w = tap % TAPS_W * DILATION_W;
  return (d * WINDOW_H + h) * X_ROW + w * X_PITCH + q % QUADS * QUAD_BYTES;
}
// The offset of a pixel's first tap. Pixels beyond the tile are the first one, whose results nobody writes.
DEVICE int pixel_at(int p) {
  return p < TILE_H * TILE_W ? p / TILE_W * STRIDE_H * X_ROW + p % TILE_W * STRIDE_W * X_PITCH : 0;
}

// The offset of the accumulator of a pixel and one of the block's filters.
DEVICE int acc_at(int p, int column) { return Y_ALONG_K ? p * ACC_PITCH + column : column * ACC_PITCH + p; }

// Reads Y neighbouring accumulators. Of eight, lanes whose accumulators lie in odd rows of the banks read the other half
// first.
template <int Y> DEVICE void read_accumulators(const float* acc, int at, float* v) {
  constexpr int PART = Y < 4 ? Y : 4;
  const bool odd = Y == 8 && (at >> 5 & 1);
  Vector<float, PART> parts[Y / PART];
#pragma unroll
  for (int i = 0; i < Y / PART; i++) parts[i] = *(const Vector<float, PART>*)(acc + at + (odd ? 1 - i : i) * PART);
#pragma unroll
  for (int e = 0; e < Y; e++) {
    const float here = parts[e / PART].at[e % PART], there = parts[Y / PART - 1 - e / PART].at[e % PART];
    v[e] = odd ? there : here;
  }
}

// Takes a tile's accumulators through the operators and writes the results, Y_VECTOR at a time: along the filters, or
// along the pixels of a row, or of rows that follow each other. PLAIN says that nothing is scaled or blended.
template <bool PLAIN, int Y>
DEVICE void write_tile(Args args, const float* acc, const Channel* channels, const Corner& corner,
                       const Column& block) {
  if (PLAIN) {
    args.beta = 0.f;
#pragma unroll
    for (int i = 0; i < OPS; i++) args.op[i].alpha = 1.f;
  }
  const Shape& s = args.shape;
  const int count = block.count();
  const idx first = corner.n * s.y_n + corner.d * s.y_d + block.first() * s.y_c;
  // A thread keeps its filters, or its pixels, while it goes down the rows of accumulators.
  constexpr int ACROSS = Y_ALONG_K ? COLUMNS / Y : TILE_H * TILE_W / Y, LANES = ACROSS < THREADS ? ACROSS : THREADS;
  constexpr int DOWN = Y_ALONG_K ? TILE_H * TILE_W : COLUMNS, ROWS = THREADS / LANES, KEPT_CHANNELS = Y_ALONG_K ? Y : 1;
  if ((int)threadIdx.x >= ROWS * LANES) return;
#pragma unroll 1
  for (int across = threadIdx.x % LANES * Y; across < ACROSS * Y; across += LANES * Y) {
    if (Y_ALONG_K && across >= count) break;
    Channel channel[KEPT_CHANNELS];
    if (Y_ALONG_K)
#pragma unroll
      for (int e = 0; e < KEPT_CHANNELS; e++) channel[e] = channels[across + e];
#pragma unroll 1
    for (int row = threadIdx.x / LANES; row < DOWN; row += ROWS) {
      const int p = Y_ALONG_K ? row : across, column = Y_ALONG_K ? across : row;
      const int h = corner.h + p / TILE_W, w = corner.w + p % TILE_W;
      if (column >= count || h >= s.out_h || w >= s.out_w) continue;
      const Coord at = {first + column * s.y_c + h * s.y_h + w * s.y_w, corner.n, block.first() + column,
                        (corner.d * s.out_h + h) * s.out_w + w};
      float v[Y];
      read_accumulators<Y>(acc, acc_at(p, column), v);
      if (!Y_ALONG_K) channel[0] = channels[column];
      finish_vector<Y, Y_ALONG_K != 0>(args, channel, v, at);
    }
  }
}

// Puts the block's filters into shared memory, as the Multiplier of the text behind this one wants them.
DEVICE void load_filters(const Args& args, char* shared, const Column& column);
