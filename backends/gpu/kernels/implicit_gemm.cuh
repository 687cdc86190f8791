// Convolution as a matrix product that is never written out: rows are output pixels, columns the filters of
// one group, the depth runs over channels and taps. Operands are read in chunks of 16 bytes along the depth
// where the layout allows it (X_VECTOR, W_VECTOR) and the pointers do, else element by element, or in runs of
// X_RUN pixels along a plane. This part reads operands and writes the result; the main loop between leaves a
// tile of f32 accumulators in shared memory, or SLICES of them (sliced-K), which threads side by side have accumulated
// over different parts of each step. SPLIT blocks may share a tile (split-K): each accumulates a share of
// the steps, and then runs the epilogue of a share of the tile, for which it adds up the accumulators of all blocks in
// the order of their ranks. How these meet is said by the text behind this one.
//
// needs macros: DEVICE
// needs constants: CHANNELS, CHANNEL_INNER, DILATION_D, DILATION_H, DILATION_W, FILTERS, ONE_TAP, OUTSIDE_D, OUTSIDE_H,
//   OUTSIDE_W, PAD_D, PAD_H, PAD_W, PART_P, SPLIT, STRIDE_D, STRIDE_H, STRIDE_W, TAPS_D, TAPS_H, TAPS_W, THREADS,
//   TILE_F, TILE_K, TILE_P, W_C, W_D, W_H, W_K, W_LINEAR, W_W, X_LINEAR, Y_ALONG_K, Y_VECTOR
// needs sizes: in_d, in_h, in_w, out_h, out_plane, out_w, pixels, x_c, x_d, x_h, x_n, x_p, x_w, y_c
// needs types: Args, Channel, Coord, Rows, Shape, T, Vector
// needs functions: channel_of, coord_of, finish, finish_vector, first_step, from_float, step_count

constexpr int CHUNK = 16 / (int)sizeof(T);
constexpr int CHUNKS = TILE_K / CHUNK;
constexpr int TAPS = TAPS_D * TAPS_H * TAPS_W;
constexpr int DEPTH = CHANNELS * TAPS;
constexpr int FILTER_TILES = (FILTERS + TILE_F - 1) / TILE_F;
constexpr int STEPS = (DEPTH + TILE_K - 1) / TILE_K;
[[maybe_unused]] constexpr int X_LOADS = TILE_P * CHUNKS / THREADS;
[[maybe_unused]] constexpr int W_LOADS = TILE_F * CHUNKS / THREADS;

// The accumulators of PART_P pixels and all filters of a tile lie in shared memory at once. Their rows are padded, so
// that the main loops' stores have no bank conflicts.
constexpr int PITCH = Y_ALONG_K ? TILE_F + 8 : PART_P + 4;
constexpr int SLICE = PITCH * (Y_ALONG_K ? PART_P : TILE_F);
DEVICE int tile_at(int p, int f) { return Y_ALONG_K ? p * PITCH + f : f * PITCH + p; }

// Where the depth of the block's steps ends.
DEVICE int depth_end() {
  const int end = SPLIT == 1 ? STEPS * TILE_K : (first_step<STEPS>() + step_count<STEPS>()) * TILE_K;
  return end < DEPTH ? end : DEPTH;
}

// Which row and chunk of an operand's tile the thread's load `i` is. Chunks: neighbours read along the depth.
// Elements: neighbours read neighbouring rows.
template <bool VECTOR, int ROWS> DEVICE int load_row(int i) {
  static_assert(VECTOR || THREADS >= ROWS, "a thread gathers for one row");
  return VECTOR ? (int)threadIdx.x / CHUNKS + i * (THREADS / CHUNKS) : (int)threadIdx.x % ROWS;
}
template <bool VECTOR, int ROWS> DEVICE int load_chunk(int i) {
  return VECTOR ? (int)threadIdx.x % CHUNKS : (int)threadIdx.x / ROWS + i * (THREADS / ROWS);
}

// A position along the depth: its channel, and its tap in each dimension.
struct Tap {
  int c, d, h, w;
};
DEVICE Tap tap_of(int depth) {
  const int t = CHANNEL_INNER ? depth / CHANNELS : depth % TAPS;
  return {CHANNEL_INNER ? depth % CHANNELS : depth / TAPS, t / (TAPS_H * TAPS_W), t / TAPS_W % TAPS_H, t % TAPS_W};
}

// A row of the image operand: the offset and coordinates of its first tap. With ONE_TAP each position of the output is
// that of the input, `x_p` from its neighbours; with X_LINEAR images follow each other at the same distance.
struct Pixel {
  int offset, d, h, w;
  bool inside;
};
DEVICE Pixel pixel_of(const Shape& s, int m, int group) {
  Pixel pixel = {};
  pixel.inside = m < s.pixels;
  if (X_LINEAR) {
    pixel.offset = m * s.x_p;
  } else {
    const int n = m / s.out_plane, p = m % s.out_plane;
    pixel.offset = n * s.x_n;
    if (ONE_TAP) {
      pixel.offset += p * s.x_p;
    } else {
      const int row = p / s.out_w;
      pixel.d = row / s.out_h * STRIDE_D - PAD_D;
      pixel.h = row % s.out_h * STRIDE_H - PAD_H;
      pixel.w = p % s.out_w * STRIDE_W - PAD_W;
      pixel.offset += pixel.d * s.x_d + pixel.h * s.x_h + pixel.w * s.x_w;
    }
  }
  pixel.offset += group * CHANNELS * s.x_c;
  return pixel;
}

// Offset of an element of the image operand, negative for one that is zero: padding, or beyond the depth.
DEVICE int image_at(const Shape& s, const Pixel& pixel, int depth) {
  const Tap t = tap_of(depth);
  const int d = t.d * DILATION_D, h = t.h * DILATION_H, w = t.w * DILATION_W;
  bool inside = pixel.inside && depth < DEPTH;
  if (OUTSIDE_D) inside = inside && (unsigned)(pixel.d + d) < (unsigned)s.in_d;
  if (OUTSIDE_H) inside = inside && (unsigned)(pixel.h + h) < (unsigned)s.in_h;
  if (OUTSIDE_W) inside = inside && (unsigned)(pixel.w + w) < (unsigned)s.in_w;
  return inside ? pixel.offset + t.c * s.x_c + d * s.x_d + h * s.x_h + w * s.x_w : -1;
}

// The same for the filters; `filter` counts within the group.
DEVICE int filter_at(int filter, int group, int depth) {
  const Tap t = tap_of(depth);
  const bool inside = filter < FILTERS && depth < DEPTH;
  const int at = W_LINEAR ? depth : t.c * W_C + t.d * W_D + t.h * W_H + t.w * W_W;
  return inside ? (group * FILTERS + filter) * W_K + at : -1;
}

// The same for main loops that keep what does not change: a Row for each row of the image operand, and a DepthEntry for
// each position along the depth, which all rows share. A row lacks some taps of each dimension, and an entry needs one of
// each; beyond the end of the depth lies a tap that every row lacks.
constexpr bool MASKED = TAPS_D + TAPS_H + TAPS_W < 32;

struct Row {
  Pixel pixel;
  unsigned lacks;
};
struct DepthEntry {
  int offset;
  unsigned needs;
};

DEVICE unsigned lacks(int first, int taps, int dilation, int length) {
  unsigned mask = 0;
#pragma unroll
  for (int t = 0; t < taps; t++) mask |= (unsigned)((unsigned)(first + t * dilation) >= (unsigned)length) << t;
  return mask;
}
DEVICE Row row_of(const Shape& s, int m, int group) {
  Row row;
  row.pixel = pixel_of(s, m, group);
  row.lacks = ~0u;
  if (MASKED && row.pixel.inside)
    row.lacks = 1u << 31 | lacks(row.pixel.d, TAPS_D, DILATION_D, s.in_d) |
                lacks(row.pixel.h, TAPS_H, DILATION_H, s.in_h) << TAPS_D |
                lacks(row.pixel.w, TAPS_W, DILATION_W, s.in_w) << (TAPS_D + TAPS_H);
  return row;
}
DEVICE DepthEntry depth_entry(const Shape& s, int depth, int end = DEPTH) {
  const Tap t = tap_of(depth);
  DepthEntry entry;
  entry.offset = t.c * s.x_c + t.d * DILATION_D * s.x_d + t.h * DILATION_H * s.x_h + t.w * DILATION_W * s.x_w;
  entry.needs = depth < end ? 1u << t.d | 1u << (TAPS_D + t.h) | 1u << (TAPS_D + TAPS_H + t.w) : 1u << 31;
  if (!MASKED) entry.needs = depth < end ? depth : DEPTH;
  return entry;
}
// Zero if the element at `row.pixel.offset + entry.offset` is of the image; otherwise the element is zero.
DEVICE unsigned missing(const Shape& s, const Row& row, const DepthEntry& entry) {
  return MASKED ? row.lacks & entry.needs : image_at(s, row.pixel, entry.needs) < 0;
}

DEVICE T zero() { return from_float<T>(0.f); }

// A chunk from its first offset, or element by element.
DEVICE void load_vector(const T* from, int at, T* chunk) {
  Vector<T, CHUNK> v;
  if (at >= 0) {
    v = *(const Vector<T, CHUNK>*)(from + at);
  } else {
#pragma unroll
    for (int e = 0; e < CHUNK; e++) v.at[e] = zero();
  }
#pragma unroll
  for (int e = 0; e < CHUNK; e++) chunk[e] = v.at[e];
}
DEVICE void gather_image(const Args& args, const Pixel& pixel, int depth, T* chunk) {
#pragma unroll
  for (int e = 0; e < CHUNK; e++) {
    const int at = image_at(args.shape, pixel, depth + e);
    chunk[e] = at >= 0 ? ((const T*)args.x)[at] : zero();
  }
}
DEVICE void gather_filter(const Args& args, int filter, int group, int depth, T* chunk) {
#pragma unroll
  for (int e = 0; e < CHUNK; e++) {
    const int at = filter_at(filter, group, depth + e);
    chunk[e] = at >= 0 ? ((const T*)args.op[0].p[0])[at] : zero();
  }
}

// The epilogue of Y_VECTOR accumulators: takes them through the operators and writes the results.
template <bool ALONG_K, bool ALIGNED>
DEVICE void epilogue(const Args& args, const Channel* channel, const float* acc, const Coord& at) {
  constexpr int PART = Y_VECTOR < 4 ? Y_VECTOR : 4;
  float v[Y_VECTOR];
#pragma unroll
  for (int i = 0; i < Y_VECTOR; i += PART) {
    const Vector<float, PART> part = *(const Vector<float, PART>*)(acc + i);
#pragma unroll
    for (int j = 0; j < PART; j++) v[i + j] = part.at[j];
  }
  if (ALIGNED) {
    finish_vector<Y_VECTOR, ALONG_K>(args, channel, v, at);
  } else {
    Coord here = at;
#pragma unroll
    for (int i = 0; i < Y_VECTOR; i++) {
      finish(args, channel[ALONG_K ? i : 0], v[i], here);
      here.y++;
      if (ALONG_K) here.k++;
      else here.p++;
    }
  }
}

// The same for some rows, which are pixels or filters, of the accumulators of PART_P pixels and all filters of a tile.
template <bool ALIGNED>
DEVICE void write_rows(const Args& args, const float* tile, int first_pixel, int first_filter, int group, Rows rows) {
  const Shape& s = args.shape;
  constexpr int COLUMNS = (Y_ALONG_K ? TILE_F : PART_P) / Y_VECTOR;
  constexpr int ROWS_AT_ONCE = THREADS / COLUMNS;
  const int column = threadIdx.x % COLUMNS;
  if (Y_ALONG_K) {
    const int f = first_filter + column * Y_VECTOR, k = group * FILTERS + f;
    if (f >= FILTERS) return;
    Channel channels[Y_VECTOR];
#pragma unroll
    for (int i = 0; i < Y_VECTOR; i++) channels[i] = channel_of(args, k + i);
#pragma unroll 1
    for (int row = rows.first + threadIdx.x / COLUMNS; row < rows.end; row += ROWS_AT_ONCE) {
      const float* acc = tile + tile_at(row, column * Y_VECTOR);
      epilogue<true, ALIGNED>(args, channels, acc, coord_of(s, first_pixel + row, k));
    }
  } else {
    const int m = first_pixel + column * Y_VECTOR;
    if (m >= s.pixels) return;
    const Coord first = coord_of(s, m, 0);
    const int first_k = group * FILTERS + first_filter;
    // What several rows need of their channels is read at once, before the first of them is written.
    constexpr int TOGETHER = !ALIGNED || sizeof(Channel) > 16 ? 1 : Y_VECTOR > 1 ? 4 : 8;
#pragma unroll 1
    for (int top = rows.first + threadIdx.x / COLUMNS; top < rows.end; top += ROWS_AT_ONCE * TOGETHER) {
      Channel channels[TOGETHER];
#pragma unroll
      for (int i = 0; i < TOGETHER; i++) {
        const int row = top + i * ROWS_AT_ONCE;
        channels[i] = channel_of(args, first_k + (row < rows.end ? row : top));
      }
#pragma unroll
      for (int i = 0; i < TOGETHER; i++) {
        const int row = top + i * ROWS_AT_ONCE;
        if (row >= rows.end) break;
        Coord at = first;
        at.k = first_k + row;
        at.y += at.k * s.y_c;
        epilogue<false, ALIGNED>(args, &channels[i], tile + tile_at(column * Y_VECTOR, row), at);
      }
    }
  }
}
