// Batch-norm for training, forward and backward: the sums of a walk, and what is written once they are known.
//
// needs macros: ACTIVATION, DEVICE, GRADIENT, KERNEL
// needs constants: ACROSS, BACKWARD, CHANNELS_INNER, COLUMNS, GROUPS, HAS_ACTIVATION, LANES, OPS, SPATIAL, THREADS,
//   V_MAX
// needs sizes: count, groups, out_h, out_w, plane, x_c, x_d, x_h, x_w, y_c, y_d, y_h, y_w
// needs types: ActivationBackward, Args, BatchNormBackward, BatchNormForward, GroupCoord, Op, Packed, Shape, Spot,
//   Sums, T, Totals, Walk, idx
// needs functions: batch_norm, begin_grid, cluster_rank, coord_of_group, each_vector, end_meeting, is_aligned,
//   is_summing, is_writing, meet, store, take_all, tile_number, to_float

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
  __shared__ Totals<N> totals;
  __shared__ Line lines[COLUMNS * N];
  const Shape& s = args.shape;
  const T* const inputs[1] = {(const T*)args.x};
  // Sums of the distances from the group's first element: the squares of small numbers keep their digits.
  Sums<N> sums;
  if (is_summing(s)) {
    if (walk.active) {
#pragma unroll
      for (int i = 0; i < N; i++) sums.from[i] = to_float(inputs[0][walk.x + i]);
    }
    const auto add = [&](const Spot& spot, const Packed<V>* v) {
#pragma unroll
      for (int e = 0; e < V; e++) {
        const int i = of_element<V>(e);
        const float d = v[0].at(e) - sums.from[i];
        if (e >= spot.from && e < spot.to) sums.a[i] += d, sums.b[i] = fmaf(d, d, sums.b[i]);
      }
      if (!ACROSS) sums.take(0);
    };
    const auto behind = [&] {
      if (ACROSS) take_all(sums);
    };
    each_vector<V, false>(s, walk, inputs, [] {}, add, behind);
  }
  if (!is_writing(s)) return meet<N>(s, walk, part, sums, totals);
  Line line[N];
  const auto begin = [&] {
    meet<N>(s, walk, part, sums, totals);
    each_group<N>(s, part, [&](int t, idx group) {
      const double count = s.count, apart = totals.of[2 * t] / count, mean = totals.from[t] + apart;
      const double spread = totals.of[2 * t + 1] / count - apart * apart, variance = spread < 0.0 ? 0.0 : spread;
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
      lines[t] = {(float)mean, (float)factor,
                  (float)(operand<const float>(args, Forward::bias)[group] - lost * factor)};
    });
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; i++) line[i] = lines[i * COLUMNS + walk.column];
  };
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
  each_vector<V, true>(s, walk, inputs, begin, write, [] {});
}

template <int V> DEVICE void backward(const Args& args, const Walk& walk, int part) {
  constexpr int N = ACROSS ? V : 1, INPUTS = HAS_ACTIVATION ? 3 : 2;
  __shared__ Totals<N> totals;
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
  if (is_summing(s)) {
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
    const auto behind = [&] {
      if (ACROSS) take_all(sums);
    };
    each_vector<V, false>(s, walk, inputs, [] {}, add, behind);
  }
  if (!is_writing(s)) return meet<N>(s, walk, part, sums, totals);
  float factor[N], offset[N], slope[N];
  const auto begin = [&] {
    meet<N>(s, walk, part, sums, totals);
    if (cluster_rank() == 0) {
      each_group<N>(s, part, [&](int t, idx group) {
        operand<float>(args, Backward::scale_diff)[group] = (float)totals.of[2 * t];
        operand<float>(args, Backward::bias_diff)[group] = (float)totals.of[2 * t + 1];
      });
    }
    if (!walk.active) return;
    const double share = 1.0 / (double)s.count;
#pragma unroll
    for (int i = 0; i < N; i++) {
      factor[i] = args.op[0].alpha * (scale[i] * inv_std[i]);
      offset[i] = (float)(totals.of[2 * (i * COLUMNS + walk.column) + 1] * share);
      slope[i] = (float)(totals.of[2 * (i * COLUMNS + walk.column)] * share);
    }
  };
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
  each_vector<V, true>(s, walk, inputs, begin, write, [] {});
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
    end_meeting();
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
