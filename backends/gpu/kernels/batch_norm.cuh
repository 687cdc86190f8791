// Batch-norm for training: a group of elements shares one mean, variance, scale and bias. GROUP_THREADS
// threads read a group three times: twice for its sums, in f64 and in an order that never changes, once for
// its results.

DEVICE void store(const Args& args, idx at, double v) {
  T* y = (T*)args.y + at;
  if (args.beta != 0.f) v += (double)args.beta * to_float(*y);
  *y = from_float<T>((float)v);
}

// Offsets of element `j` of a group in the input and in the output.
struct Element {
  idx x, y;
};
DEVICE Element element_at(const Shape& s, idx group, idx j) {
  const idx n = SPATIAL ? j / s.out_plane : j;
  const idx c = SPATIAL ? group : group / s.out_plane;
  const idx p = SPATIAL ? j % s.out_plane : group % s.out_plane;
  const idx row = p / s.out_w, w = p % s.out_w, h = row % s.out_h, d = row / s.out_h;
  return {n * s.x_n + c * s.x_c + d * s.x_d + h * s.x_h + w * s.x_w,
          n * s.y_n + c * s.y_c + d * s.y_d + h * s.y_h + w * s.y_w};
}

// 1 / v to the last bits but one, by Newton's steps: f64 division is a call, around which registers spill.
DEVICE double reciprocal(double v) {
  double r = __fdividef(1.f, (float)v);
  r = r * (2.0 - v * r);
  return r * (2.0 - v * r);
}

// The sum over the threads of a group, for all of them.
DEVICE double group_sum(double v) {
  if (GROUP_THREADS == 1) return v;
  __shared__ double sums[GROUP_THREADS];
  sums[threadIdx.x] = v;
  for (int half = GROUP_THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  __syncthreads();
  const double sum = sums[0];
  __syncthreads();
  return sum;
}

// Gradients of the activations with respect to their input x, given their output y. MIOpen's: that of POWER
// leaves dy out.
constexpr double LEAST = sizeof(T) == 4 ? 1e-6 : 1e-4;
DEVICE double grad_pasthru(double, double, double dy, const Op&) { return dy; }
DEVICE double grad_logistic(double, double y, double dy, const Op&) { return dy * y * (1.0 - y); }
DEVICE double grad_tanh(double, double y, double dy, const Op& o) {
  return fabs((double)o.b) <= LEAST ? 0.0 : dy * o.a * (o.b - y * y / o.b);
}
DEVICE double grad_relu(double x, double, double dy, const Op&) { return x > 0.0 ? dy : 0.0; }
DEVICE double grad_softrelu(double x, double, double dy, const Op&) {
  const double e = exp(fmin(x, 50.0));
  return dy * e / (1.0 + e);
}
DEVICE double grad_abs(double x, double, double dy, const Op&) { return x > 0.0 ? dy : -dy; }
DEVICE double grad_power(double x, double y, double, const Op& o) {
  const double base = o.a + (double)o.b * x;
  return base <= LEAST ? 0.0 : (double)o.b * o.c * y / base;
}
DEVICE double grad_clippedrelu(double x, double, double dy, const Op& o) { return x > 0.0 && x <= o.a ? dy : 0.0; }
DEVICE double grad_leakyrelu(double x, double, double dy, const Op& o) { return x > 0.0 ? dy : o.a * dy; }
DEVICE double grad_elu(double x, double y, double dy, const Op& o) { return x > 0.0 ? dy : dy * (y + o.a); }
DEVICE double grad_clamp(double x, double, double dy, const Op& o) { return x > o.a && x <= o.b ? dy : 0.0; }

// Pointers of the batch-norm, which fill two places among the operators; the activation is behind them.
template <class P> DEVICE P* operand(const Args& args, int i) { return (P*)args.op[i / 4].p[i % 4]; }

DEVICE void forward(const Args& args, idx group, int lane) {
  const Shape& s = args.shape;
  const T* input = (const T*)args.x;
  const double count = s.count;
  double sum = 0.0;
  for (idx j = lane; j < s.count; j += GROUP_THREADS) sum += to_float(input[element_at(s, group, j).x]);
  const double mean = group_sum(sum) / count;
  sum = 0.0;
  for (idx j = lane; j < s.count; j += GROUP_THREADS) {
    const double d = to_float(input[element_at(s, group, j).x]) - mean;
    sum += d * d;
  }
  const double variance = group_sum(sum) / count;
  const double inv_std = 1.0 / sqrt(variance + args.op[0].a);
  if (lane == 0) {
    const double f = args.op[0].b, unbiased = count > 1.0 ? variance * count / (count - 1.0) : variance;
    float* saved_mean = operand<float>(args, 2);
    float* saved_inv_std = operand<float>(args, 3);
    float* running_mean = operand<float>(args, 4);
    float* running_variance = operand<float>(args, 5);
    if (saved_mean) saved_mean[group] = (float)mean;
    if (saved_inv_std) saved_inv_std[group] = (float)inv_std;
    if (running_mean) running_mean[group] = (float)((1.0 - f) * running_mean[group] + f * mean);
    if (running_variance) running_variance[group] = (float)((1.0 - f) * running_variance[group] + f * unbiased);
  }
  const double scale = operand<const float>(args, 0)[group], bias = operand<const float>(args, 1)[group];
  for (idx j = lane; j < s.count; j += GROUP_THREADS) {
    const Element at = element_at(s, group, j);
    double y = args.op[0].alpha * (scale * ((to_float(input[at.x]) - mean) * inv_std) + bias);
    if (HAS_ACTIVATION) y = args.op[2].alpha * ACTIVATION((float)y, args.op[2]);
    store(args, at.y, y);
  }
}

DEVICE void backward(const Args& args, idx group, int lane) {
  const Shape& s = args.shape;
  const T* x = operand<const T>(args, 0);
  const double scale = operand<const float>(args, 1)[group], bias = operand<const float>(args, 2)[group];
  const double mean = operand<const float>(args, 5)[group], inv_std = operand<const float>(args, 6)[group];
  // An element as it was normalised, and its gradient behind the activation.
  const auto gradient = [&](idx at, double& normalised) {
    normalised = (to_float(x[at]) - mean) * inv_std;
    const double dy = to_float(((const T*)args.x)[at]);
    if (!HAS_ACTIVATION) return dy;
    const double y = to_float(((const T*)args.op[2].p[0])[at]);
    return args.op[2].alpha * GRADIENT(scale * normalised + bias, y, dy, args.op[2]);
  };
  double dscale = 0.0, dbias = 0.0, normalised;
  for (idx j = lane; j < s.count; j += GROUP_THREADS) {
    const double dy = gradient(element_at(s, group, j).x, normalised);
    dscale += dy * normalised;
    dbias += dy;
  }
  dscale = group_sum(dscale);
  dbias = group_sum(dbias);
  if (lane == 0) {
    operand<float>(args, 3)[group] = (float)dscale;
    operand<float>(args, 4)[group] = (float)dbias;
  }
  const double count = s.count, factor = args.op[0].alpha * (scale * inv_std * reciprocal(count));
  for (idx j = lane; j < s.count; j += GROUP_THREADS) {
    const Element at = element_at(s, group, j);
    const double dy = gradient(at.x, normalised);
    store(args, at.y, factor * (count * dy - dbias - normalised * dscale));
  }
}

KERNEL(256, 1) {
  const idx group = (idx)blockIdx.x * (256 / GROUP_THREADS) + threadIdx.x / GROUP_THREADS;
  if (group >= args.shape.groups) return;
  const int lane = threadIdx.x % GROUP_THREADS;
  if (BACKWARD) backward(args, group, lane); else forward(args, group, lane);
}
