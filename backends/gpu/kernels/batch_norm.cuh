// Batch-norm for training: a group of elements shares one mean, variance, scale and bias. A thread takes vectors of
// V elements: of V neighbouring groups (ACROSS), or V neighbouring elements of one group. COLUMNS threads
// beside each other stand for the groups of a block, LANES others walk over the groups' elements, twice: for the
// sums, which f32 takes over the elements of a vector, or of a few vectors, that are of one group, and f64, in an order that
// never changes, over all, and for the results. SPLIT blocks, a cluster, may share the elements of their groups: each adds up
// the sums of all, in the order of their ranks.
//
// needs macros: ACTIVATION, DEVICE, GRADIENT, KERNEL
// needs constants: ACROSS, BACKWARD, CHANNELS_INNER, COLUMNS, HAS_ACTIVATION, LINEAR, OPS, SPATIAL, SPLIT, THREADS, V_MAX
// needs sizes: channels, count, groups, images, out_h, out_w, plane, plane_vectors, x_c, x_d, x_h, x_n, x_step, x_w,
//   y_c, y_d, y_h, y_n, y_step, y_w
// needs types: ActivationBackward, Args, BatchNormBackward, BatchNormForward, Op, Packed, Shape, T, idx
// needs functions: batch_norm, begin_grid, cluster_arrive, cluster_load, cluster_rank, cluster_sync, cluster_wait,
//   is_aligned, tile_number, to_float, write_vector

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

// Calls `body(spot, a vector of each of the inputs)` for every vector of a walk; several are on their way at once, behind which
// it calls `behind()`. Of a single input those of the next round are, too, where it takes little to know where they lie.
template <int V, int INPUTS, class Body, class Behind>
DEVICE void each_vector(const Shape& s, const Walk& walk, const T* const (&inputs)[INPUTS], Body body, Behind behind) {
  constexpr int UNROLL = INPUTS == 1 ? 4 : 2, ROUND = UNROLL * WALKERS;
  constexpr bool AHEAD = ACROSS && LINEAR != 0 && INPUTS == 1;
  const idx vectors = ACROSS ? s.count : V == 1 ? s.count : s.images * s.plane_vectors.value;
  Spot spot[UNROLL];
  Packed<V> v[UNROLL][INPUTS], next[UNROLL][INPUTS];
  const auto load_round = [&](idx first, Packed<V>(&to)[UNROLL][INPUTS]) {
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      if (first + u * WALKERS >= vectors) break;
      spot[u] = spot_of<V>(s, walk, first + u * WALKERS);
#pragma unroll
      for (int i = 0; i < INPUTS; i++) load<V>(inputs[i], spot[u], to[u][i]);
    }
  };
  idx first = cluster_rank() * LANES + walk.lane;
  if (AHEAD) load_round(first, v);
#pragma unroll 1
  for (; first < vectors; first += ROUND) {
    if (AHEAD) load_round(first + ROUND, next);
    else load_round(first, v);
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      if (first + u * WALKERS >= vectors) break;
      body(AHEAD ? spot_of<V>(s, walk, first + u * WALKERS) : spot[u], v[u]);
    }
    behind();
    if (AHEAD) {
#pragma unroll
      for (int u = 0; u < UNROLL; u++) v[u][0] = next[u][0];
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

// What is summed of a group, twice: numbers of a thread over some vectors in f32, over all in f64.
template <int N> struct Sums {
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

// The sums over all lanes of each of a block's groups, N of a thread, into every other number of `totals` in shared memory: each
// of PARTS threads adds every PARTS-th lane's, then one thread adds those. Number `i` of a column is at i * COLUMNS + column.
template <int N> DEVICE void block_sums(const Walk& walk, const double (&v)[N], double* totals) {
  if constexpr (LANES == 1) {
#pragma unroll
    for (int i = 0; i < N; i++) totals[2 * (i * COLUMNS + walk.column)] = v[i];
  } else {
    constexpr int WIDTH = COLUMNS * N, PARTS = LANES < 16 ? LANES : 16;
    __shared__ double lanes[LANES * WIDTH];
    __shared__ double parts[PARTS * WIDTH];
#pragma unroll
    for (int i = 0; i < N; i++)
      if (walk.lane < LANES) lanes[walk.lane * WIDTH + i * COLUMNS + walk.column] = v[i];
    __syncthreads();
    for (int t = threadIdx.x; t < PARTS * WIDTH; t += THREADS) {
      double sum = 0.0;
      for (int lane = t / WIDTH; lane < LANES; lane += PARTS) sum += lanes[lane * WIDTH + t % WIDTH];
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

// Both sums of each of a block's groups over all blocks that share them, at 2 * t and 2 * t + 1. Blocks have to wait for the
// cluster before they end or sum again.
template <int N> DEVICE void group_sums(const Walk& walk, const Sums<N>& sums, double* totals) {
  if constexpr (SPLIT == 1) {
    block_sums<N>(walk, sums.all_a, totals);
    block_sums<N>(walk, sums.all_b, totals + 1);
  } else {
    __shared__ double own[2 * COLUMNS * N];
    block_sums<N>(walk, sums.all_a, own);
    block_sums<N>(walk, sums.all_b, own + 1);
    cluster_sync();
    for (int t = threadIdx.x; t < 2 * COLUMNS * N; t += THREADS) {
      double sum = 0.0;
#pragma unroll
      for (int rank = 0; rank < SPLIT; rank++) sum += cluster_load(rank, own + t);
      totals[t] = sum;
    }
    cluster_arrive();
  }
  __syncthreads();
}

// An operand of the batch-norm; an activation is the operator behind it.
typedef BatchNormForward Forward;
typedef BatchNormBackward Backward;
template <class P> DEVICE P* operand(const Args& args, int i) { return (P*)args.op[0].p[i]; }

// A number of a group for the element `e` of a vector.
template <int V> DEVICE int of_element(int e) { return ACROSS ? e : 0; }

// Calls `body(t, parameter)` for each of the block's groups, number `t` of the totals, once: on one of its threads.
template <int N, class Body> DEVICE void each_group(const Shape& s, int part, Body body) {
  for (int t = threadIdx.x; t < COLUMNS * N; t += THREADS) {
    const idx slot = (idx)tile_number() * GROUPS + t % COLUMNS * (ACROSS ? V_MAX : 1) + part + t / COLUMNS;
    if (slot < s.groups) body(t, coord_of_group(s, slot).parameter);
  }
}

// What the groups' elements are multiplied and moved by. Read whole, it shares its 16 bytes with nothing that is
// written without a barrier.
struct alignas(16) Line {
  float mean, factor, bias;
};

template <int V> DEVICE void forward(const Args& args, const Walk& walk, int part) {
  constexpr int N = ACROSS ? V : 1;
  __shared__ double totals[2 * COLUMNS * N];
  __shared__ float pivots[COLUMNS * N];
  __shared__ Line lines[COLUMNS * N];
  const Shape& s = args.shape;
  const T* const inputs[1] = {(const T*)args.x};
  // Sums of the distances from the group's first element: the squares of small numbers keep their digits.
  float pivot[N] = {};
  Sums<N> sums;
  if (walk.active) {
#pragma unroll
    for (int i = 0; i < N; i++) pivot[i] = to_float(inputs[0][walk.x + i]);
    const auto add = [&](const Spot& spot, const Packed<V>* v) {
#pragma unroll
      for (int e = 0; e < V; e++) {
        const int i = of_element<V>(e);
        const float d = v[0].at(e) - pivot[i];
        if (e >= spot.from && e < spot.to) sums.a[i] += d, sums.b[i] = fmaf(d, d, sums.b[i]);
      }
      if (!ACROSS) sums.take(0);
    };
    each_vector<V>(s, walk, inputs, add, [&] {
      if (ACROSS) take_all(sums);
    });
  }
  if (walk.lane == 0) {
#pragma unroll
    for (int i = 0; i < N; i++) pivots[i * COLUMNS + walk.column] = pivot[i];
  }
  group_sums(walk, sums, totals);
  each_group<N>(s, part, [&](int t, idx group) {
    const double count = s.count, apart = totals[2 * t] / count, mean = pivots[t] + apart;
    const double spread = totals[2 * t + 1] / count - apart * apart, variance = spread < 0.0 ? 0.0 : spread;
    const double inv_std = 1.0 / sqrt(variance + args.op[0].a);
    const double f = args.op[0].b, unbiased = count > 1.0 ? variance * count / (count - 1.0) : variance;
    float* saved_mean = operand<float>(args, Forward::saved_mean);
    float* saved_inv_std = operand<float>(args, Forward::saved_inv_variance);
    float* running_mean = operand<float>(args, Forward::running_mean);
    float* running_variance = operand<float>(args, Forward::running_variance);
    if (cluster_rank() == 0) {
      if (saved_mean) saved_mean[group] = (float)mean;
      if (saved_inv_std) saved_inv_std[group] = (float)inv_std;
      if (running_mean) running_mean[group] = (float)((1.0 - f) * running_mean[group] + f * mean);
      if (running_variance) running_variance[group] = (float)((1.0 - f) * running_variance[group] + f * unbiased);
    }
    // What the mean loses as f32 is not little beside a small deviation; the bias has it.
    const double factor = operand<const float>(args, Forward::scale)[group] * inv_std, lost = mean - (float)mean;
    lines[t] = {(float)mean, (float)factor, (float)(operand<const float>(args, Forward::bias)[group] - lost * factor)};
  });
  __syncthreads();
  if (!walk.active) return;
  Line line[N];
#pragma unroll
  for (int i = 0; i < N; i++) line[i] = lines[i * COLUMNS + walk.column];
  const auto write = [&](const Spot& spot, const Packed<V>* v) {
    float y[V];
#pragma unroll
    for (int e = 0; e < V; e++) {
      const Line& of = line[of_element<V>(e)];
      y[e] = args.op[0].alpha * batch_norm(v[0].at(e), of.mean, of.factor, of.bias);
      if (HAS_ACTIVATION) y[e] = args.op[OPS - 1].alpha * ACTIVATION(y[e], args.op[OPS - 1]);
    }
    store<V>(args, spot, y);
  };
  each_vector<V>(s, walk, inputs, write, [] {});
}

template <int V> DEVICE void backward(const Args& args, const Walk& walk, int part) {
  constexpr int N = ACROSS ? V : 1, INPUTS = HAS_ACTIVATION ? 3 : 2;
  __shared__ double totals[2 * COLUMNS * N];
  const Shape& s = args.shape;
  const T* const all[3] = {(const T*)args.x, operand<const T>(args, Backward::x),
                           (const T*)args.op[OPS - 1].p[ActivationBackward::y]};
  const T* inputs[INPUTS];
#pragma unroll
  for (int i = 0; i < INPUTS; i++) inputs[i] = all[i];
  float scale[N], bias[N], mean[N], inv_std[N];
  if (walk.active) {
#pragma unroll
    for (int i = 0; i < N; i++) {
      const idx group = walk.group + i * walk.next;
      scale[i] = operand<const float>(args, Backward::scale)[group];
      bias[i] = operand<const float>(args, Backward::bias)[group];
      mean[i] = operand<const float>(args, Backward::saved_mean)[group];
      inv_std[i] = operand<const float>(args, Backward::saved_inv_variance)[group];
    }
  }
  // An element as it was normalised, and its gradient behind the activation.
  const auto gradient = [&](const Packed<V>* v, int e, float& normalised) {
    const int i = of_element<V>(e);
    normalised = (v[1].at(e) - mean[i]) * inv_std[i];
    const float dy = v[0].at(e);
    if (!HAS_ACTIVATION) return dy;
    const Op& op = args.op[OPS - 1];
    return op.alpha * GRADIENT(fmaf(scale[i], normalised, bias[i]), v[INPUTS - 1].at(e), dy, op);
  };
  Sums<N> sums;
  if (walk.active) {
    const auto add = [&](const Spot& spot, const Packed<V>* v) {
#pragma unroll
      for (int e = 0; e < V; e++) {
        const int i = of_element<V>(e);
        float normalised;
        const float dy = gradient(v, e, normalised);
        if (e >= spot.from && e < spot.to) sums.a[i] = fmaf(dy, normalised, sums.a[i]), sums.b[i] += dy;
      }
      if (!ACROSS) sums.take(0);
    };
    each_vector<V>(s, walk, inputs, add, [&] {
      if (ACROSS) take_all(sums);
    });
  }
  group_sums(walk, sums, totals);
  if (cluster_rank() == 0) {
    each_group<N>(s, part, [&](int t, idx group) {
      operand<float>(args, Backward::scale_diff)[group] = (float)totals[2 * t];
      operand<float>(args, Backward::bias_diff)[group] = (float)totals[2 * t + 1];
    });
  }
  if (!walk.active) return;
  const double share = 1.0 / (double)s.count;
  float factor[N], offset[N], slope[N];
#pragma unroll
  for (int i = 0; i < N; i++) {
    factor[i] = args.op[0].alpha * (scale[i] * inv_std[i]);
    offset[i] = (float)(totals[2 * (i * COLUMNS + walk.column) + 1] * share);
    slope[i] = (float)(totals[2 * (i * COLUMNS + walk.column)] * share);
  }
  const auto write = [&](const Spot& spot, const Packed<V>* v) {
    float dx[V];
#pragma unroll
    for (int e = 0; e < V; e++) {
      const int i = of_element<V>(e);
      float normalised;
      const float dy = gradient(v, e, normalised);
      dx[e] = factor[i] * (dy - offset[i] - normalised * slope[i]);
    }
    store<V>(args, spot, dx);
  };
  each_vector<V>(s, walk, inputs, write, [] {});
}

template <int V> DEVICE void all(const Args& args) {
  const Shape& s = args.shape;
#pragma unroll 1
  for (int part = 0; part < (ACROSS ? V_MAX : V); part += V) {
    Walk walk;
    walk.column = threadIdx.x % COLUMNS;
    walk.lane = threadIdx.x / COLUMNS;
    const idx slot = (idx)tile_number() * GROUPS + walk.column * (ACROSS ? V_MAX : 1) + part;
    walk.active = walk.lane < LANES && slot < s.groups;
    const GroupCoord at = coord_of_group(s, slot);
    walk.group = at.parameter;
    walk.next = !SPATIAL && CHANNELS_INNER ? (idx)s.plane.value : 1;
    const idx row = at.p / s.out_w, w = at.p % s.out_w, h = row % s.out_h, d = row / s.out_h;
    walk.x = at.c * s.x_c + d * s.x_d + h * s.x_h + w * s.x_w;
    walk.y = at.c * s.y_c + d * s.y_d + h * s.y_h + w * s.y_w;
    if (BACKWARD) backward<V>(args, walk, part);
    else forward<V>(args, walk, part);
    cluster_wait();
  }
}

KERNEL(THREADS, 1) {
  begin_grid();
  constexpr int BYTES = V_MAX * (int)sizeof(T);
  bool aligned = is_aligned(args.x, BYTES) && is_aligned(args.y, BYTES);
  if (BACKWARD) {
    aligned = aligned && is_aligned(args.op[0].p[Backward::x], BYTES);
    if (HAS_ACTIVATION) aligned = aligned && is_aligned(args.op[OPS - 1].p[ActivationBackward::y], BYTES);
  }
  if (aligned) all<V_MAX>(args);
  else all<1>(args);
}
