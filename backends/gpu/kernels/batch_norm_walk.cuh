// Batch-norm for training: a group of elements shares one mean, variance, scale and bias. A thread takes vectors of
// V elements: of V neighbouring groups (ACROSS), or V neighbouring elements of one group. COLUMNS threads
// beside each other stand for the groups of a block, LANES others walk over the groups' elements, twice: for the
// sums, which f32 takes over the elements of a vector, or of a few vectors, that are of one group, and f64, in an order that
// never changes, over all, and, in the opposite direction, for the results: what was read last is still in a cache. SPLIT blocks
// may share the elements of their groups: how they come by the sums of all is another file's.
//
// needs macros: DEVICE
// needs constants: ACROSS, CHANNELS_INNER, COLUMNS, LINEAR, SPATIAL, SPLIT, THREADS, V_MAX
// needs sizes: channels, count, images, out_h, out_w, plane, plane_vectors, x_d, x_h, x_n, x_step, x_w, y_d, y_h, y_n,
//   y_step, y_w
// needs types: Args, Packed, Shape, T, idx
// needs functions: cluster_rank, write_vector

constexpr int LANES = THREADS / COLUMNS;
// Lanes of all blocks that share groups.
constexpr int WALKERS = LANES * SPLIT;
// Groups of a block.
constexpr int GROUPS = ACROSS ? COLUMNS * V_MAX : 1;

// A thread's first group and the distance to the next in the parameters, the offsets of the groups' first elements,
// which are neighbours, and the thread among the block's.
struct Walk {
  idx group, next, x, y;
  int column, lane;
  bool active;
};

// A group's channel and position, and its number among the parameters. Groups are counted in the order of memory: all
// channels of a position, or all positions of a channel.
struct GroupCoord {
  idx c, p, parameter;
};
DEVICE GroupCoord coord_of_group(const Shape& s, idx slot) {
  if (SPATIAL) return {slot, 0, slot};
  if (CHANNELS_INNER) {
    const idx p = s.channels.divide(slot), c = slot - p * s.channels.value;
    return {c, p, c * s.plane.value + p};
  }
  const idx c = s.plane.divide(slot);
  return {c, slot - c * s.plane.value, slot};
}

// A vector: its offsets, and those of its elements that are of the group.
struct Spot {
  idx x, y;
  int from, to;
};

// Vector number `i` of a walk.
template <int V> DEVICE Spot spot_of(const Shape& s, const Walk& walk, idx i) {
  if (ACROSS) {
    if (LINEAR) return {walk.x + i * s.x_step, walk.y + i * s.y_step, 0, V};
    const idx n = s.plane.divide(i), p = i - n * s.plane.value;
    const idx row = p / s.out_w, w = p % s.out_w, h = row % s.out_h, d = row / s.out_h;
    return {walk.x + n * s.x_n + d * s.x_d + h * s.x_h + w * s.x_w,
            walk.y + n * s.y_n + d * s.y_d + h * s.y_h + w * s.y_w, 0, V};
  }
  // Vectors lie at multiples of their size, planes anywhere: the first and the last reach beyond the plane.
  const idx n = V == 1 ? s.plane.divide(i) : s.plane_vectors.divide(i);
  const idx start = walk.x + n * s.x_n;
  const int before = (int)(start & (V - 1));
  const idx p = (i - n * (V == 1 ? s.plane.value : s.plane_vectors.value)) * V - before;
  const idx left = s.plane.value - p;
  return {start + p, walk.y + n * s.y_n + p, p < 0 ? before : 0, left < V ? (left < 0 ? 0 : (int)left) : V};
}

template <int V> DEVICE void load(const T* from, const Spot& spot, Packed<V>& v) {
  if (spot.from == 0 && spot.to == V) {
    v = *(const Packed<V>*)(from + spot.x);
    return;
  }
  v = {};
#pragma unroll
  for (int e = 0; e < V; e++)
    if (e >= spot.from && e < spot.to) v.set(e, from[spot.x + e]);
}

// Calls `body(spot, a vector of each of the inputs)` for every vector of an active walk, from the first on or from the last.
// Several are on their way at once: before the first of them it calls `begin()`, of all threads, and behind each such round
// `behind()`. Of a single input those of the next round are, too, where it takes little to know where they lie.
template <int V, bool FROM_LAST, int INPUTS, class Begin, class Body, class Behind>
DEVICE void each_vector(const Shape& s, const Walk& walk, const T* const (&inputs)[INPUTS], Begin begin, Body body,
                        Behind behind) {
  constexpr int UNROLL = INPUTS == 1 ? 4 : 2, ROUND = UNROLL * WALKERS;
  constexpr bool AHEAD = ACROSS && LINEAR != 0 && INPUTS == 1;
  const idx all = ACROSS || V == 1 ? s.count : s.images * s.plane_vectors.value, vectors = walk.active ? all : 0;
  Spot spot[UNROLL];
  Packed<V> v[UNROLL][INPUTS], next[UNROLL][INPUTS];
  const auto spot_at = [&](idx i) { return spot_of<V>(s, walk, FROM_LAST ? all - 1 - i : i); };
  const auto load_round = [&](idx first, Packed<V>(&to)[UNROLL][INPUTS]) {
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      if (first + u * WALKERS >= vectors) break;
      spot[u] = spot_at(first + u * WALKERS);
#pragma unroll
      for (int i = 0; i < INPUTS; i++) load<V>(inputs[i], spot[u], to[u][i]);
    }
  };
  idx first = cluster_rank() * LANES + walk.lane;
  load_round(first, v);
  begin();
#pragma unroll 1
  for (; first < vectors; first += ROUND) {
    if (AHEAD) load_round(first + ROUND, next);
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      if (first + u * WALKERS >= vectors) break;
      body(AHEAD ? spot_at(first + u * WALKERS) : spot[u], v[u]);
    }
    behind();
    if (AHEAD) {
#pragma unroll
      for (int u = 0; u < UNROLL; u++) v[u][0] = next[u][0];
    } else {
      load_round(first + ROUND, v);
    }
  }
}

// Writes what of a vector is of the group.
template <int V> DEVICE void store(const Args& args, const Spot& spot, float* v) {
  if (spot.from == 0 && spot.to == V) {
    write_vector<V>(args, spot.y, v);
    return;
  }
#pragma unroll
  for (int e = 0; e < V; e++)
    if (e >= spot.from && e < spot.to) write_vector<1>(args, spot.y + e, v + e);
}

// What is summed of a group, twice: numbers of a thread over some vectors in f32, over all in f64. What they are the distances
// from is the same in all blocks.
template <int N> struct Sums {
  float from[N] = {};
  float a[N] = {}, b[N] = {};
  double all_a[N] = {}, all_b[N] = {};
  // Takes what was summed of group `i` since the last time.
  DEVICE void take(int i) {
    all_a[i] += a[i], all_b[i] += b[i];
    a[i] = b[i] = 0.f;
  }
};

template <int N> DEVICE void take_all(Sums<N>& sums) {
#pragma unroll
  for (int i = 0; i < N; i++) sums.take(i);
}

// Shared memory for a number of each lane and group, and as many of one more lane: of one use after the other, whatever V is.
DEVICE double* shared_numbers() {
  __shared__ double numbers[(LANES + 1) * GROUPS];
  return numbers;
}

// The sums over all lanes of each of a block's groups, N of a thread, into every other number of `totals` in shared memory: each
// of PARTS threads adds every PARTS-th lane's, then one thread adds those. Number `i` of a column is at i * COLUMNS + column.
template <int N> DEVICE void block_sums(const Walk& walk, const double (&v)[N], double* totals) {
  if constexpr (LANES == 1) {
#pragma unroll
    for (int i = 0; i < N; i++) totals[2 * (i * COLUMNS + walk.column)] = v[i];
  } else {
    // What lanes have of a group and its like in other columns lies together; that of a column's next groups begins in other banks.
    constexpr int WIDTH = COLUMNS * N, PARTS = LANES < 16 ? LANES : 16, NEXT = (LANES + 1) * COLUMNS;
    __shared__ double parts[PARTS * WIDTH];
    double* const numbers = shared_numbers();
#pragma unroll
    for (int i = 0; i < N; i++)
      if (walk.lane < LANES) numbers[i * NEXT + walk.lane * COLUMNS + walk.column] = v[i];
    __syncthreads();
    for (int t = threadIdx.x; t < PARTS * WIDTH; t += THREADS) {
      const int group = t % WIDTH, at = group / COLUMNS * NEXT + group % COLUMNS;
      double sum = 0.0;
      for (int lane = t / WIDTH; lane < LANES; lane += PARTS) sum += numbers[at + lane * COLUMNS];
      parts[t] = sum;
    }
    __syncthreads();
    for (int t = threadIdx.x; t < WIDTH; t += THREADS) {
      double sum = 0.0;
      for (int part = 0; part < PARTS; part++) sum += parts[part * WIDTH + t];
      totals[2 * t] = sum;
    }
  }
}

// Both sums of each of a block's groups over all its elements, at 2 * t and 2 * t + 1, and what they are the distances from.
template <int N> struct Totals {
  double of[2 * COLUMNS * N];
  float from[COLUMNS * N];
};
template <int N> DEVICE void block_totals(const Walk& walk, const Sums<N>& sums, Totals<N>& totals) {
  if (walk.lane == 0) {
#pragma unroll
    for (int i = 0; i < N; i++) totals.from[i * COLUMNS + walk.column] = sums.from[i];
  }
  block_sums<N>(walk, sums.all_a, totals.of);
  block_sums<N>(walk, sums.all_b, totals.of + 1);
}
