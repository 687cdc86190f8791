// cuda.element_wise.v1 on sm_80: 8 elements at a time
// Geometry { grid: [2091, 1, 1], block: 128, shared: 40 }
// Made by `UPDATE=1 cargo test -p fuseplan-cuda --test kernels`, which `cargo test` compares with what is made now.


#define DEVICE __device__ __forceinline__
#define KERNEL(...) \
  extern "C" __global__ void __launch_bounds__(__VA_ARGS__) CLUSTER fuseplan_kernel(const __grid_constant__ Args args)
DEVICE void launch_next_grid() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
DEVICE void wait_for_grids() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
DEVICE void wait_for_grids(int known) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{\n.reg .pred p;\nsetp.ge.s32 p, %0, 0;\n@p griddepcontrol.wait;\n}" ::"r"(known) : "memory");
#endif
}
DEVICE void begin_grid() {
  launch_next_grid();
  wait_for_grids();
}
DEVICE void prefetch_sector(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }
template <class Hint> DEVICE void begin_grid(Hint hint) {
  launch_next_grid();
#if __CUDA_ARCH__ >= 900
  hint();
#endif
  wait_for_grids();
}
#define CLUSTER
#if __CUDA_ARCH__ < 800
#define AT_ONCE(blocks, shared) ((blocks) < 2 ? (blocks) : 2)
#else
#define AT_ONCE(blocks, shared) (blocks)
#endif
#define UNROLLED(rounds, products) (rounds)
#define WIDE_ROUNDS 4
#define DYNAMIC_SHARED(type, name) extern __shared__ __align__(128) type name[]

template <class Args> DEVICE const Args& reread(const Args& args) { return args; }

DEVICE float float_of_bits(unsigned v) { return __uint_as_float(v); }
DEVICE unsigned bits_of(float v) { return __float_as_uint(v); }

struct f16 {
  unsigned short bits;
};
struct bf16 {
  unsigned short bits;
};

DEVICE float to_float(f16 v) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v.bits));
  return r;
}
DEVICE float to_float(bf16 v) { return __uint_as_float((unsigned)v.bits << 16); }
DEVICE f16 f16_from_float(float v) {
  f16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
  return r;
}
DEVICE bf16 bf16_from_float(float v) {
  bf16 r;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
#else
  const unsigned u = __float_as_uint(v);
  r.bits = v != v ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
#endif
  return r;
}

struct ConvForward { enum { weights }; };
struct BiasForward { enum { bias }; };
struct PReluForward { enum { slope }; };
struct BatchNormInference { enum { scale, bias, mean, variance }; };
struct BatchNormForward { enum { scale, bias, saved_mean, saved_inv_variance, running_mean, running_variance }; };
struct BatchNormBackward { enum { x, scale, bias, saved_mean, saved_inv_variance, scale_diff, bias_diff }; };
struct ActivationBackward { enum { y }; };
typedef bf16 T;
typedef int idx;
typedef unsigned int Unsigned;
struct alignas(8) Size {
  idx value;
  DEVICE operator idx() const { return value; }
};
struct Divisor {
  Size value;
  unsigned multiplier, shift;
  DEVICE idx divide(idx n) const {
    return sizeof(idx) == 4 ? (idx)((unsigned long long)(unsigned)n * multiplier >> shift) : n / value;
  }
  DEVICE operator idx() const { return value; }
};
template <class N> DEVICE idx operator/(N n, const Divisor& d) { return d.divide(n); }
template <class N> DEVICE idx operator%(N n, const Divisor& d) { return n - d.divide(n) * d.value; }
constexpr int CHANNEL_THREADS{1};
constexpr int THREADS{128};
constexpr int BLOCKS{8};
constexpr int EARLY_BLOCKS{864};
constexpr int UNROLL{3};
constexpr int V_MAX{8};
constexpr int CHANNELS_LAST{0};
constexpr int CHANNEL_TABLE{1};
constexpr int WHOLE_VECTORS{1};
constexpr int PLANE_PART{8};
constexpr int LONG_PLANES{1};
constexpr int CROSSING_WARPS{0};
constexpr int OPS = 5;
constexpr int POINTERS = 4;
struct Shape {
  Size outputs;
  Size pixels;
  Divisor channels;
  Divisor plane;
  Divisor columns;
  Size bias0_c;
  Size slope2_c;
  Size out_plane;
  Size slope4_c;
};


template <class E, int V> struct alignas(sizeof(E) * V) Vector {
  E at[V];
};

DEVICE float to_float(float v) { return v; }
template <class E> DEVICE E from_float(float v);
template <> DEVICE float from_float<float>(float v) { return v; }
template <> DEVICE f16 from_float<f16>(float v) { return f16_from_float(v); }
template <> DEVICE bf16 from_float<bf16>(float v) { return bf16_from_float(v); }

DEVICE float part(unsigned word, bool, float) { return float_of_bits(word); }
DEVICE float part(unsigned word, bool high, f16) {
  const f16 element = {(unsigned short)(high ? word >> 16 : word)};
  return to_float(element);
}
DEVICE float part(unsigned word, bool high, bf16) { return float_of_bits(high ? word & 0xffff0000u : word << 16); }
DEVICE unsigned bits_of(f16 v) { return v.bits; }
DEVICE unsigned bits_of(bf16 v) { return v.bits; }

template <int V, bool WORDS = (sizeof(T) * V >= 4)> struct alignas(sizeof(T) * V) Packed {
  static constexpr int A_WORD = 4 / (int)sizeof(T);
  unsigned words[V / A_WORD];
  DEVICE float at(int i) const { return part(words[i / A_WORD], i % A_WORD != 0, T()); }
  DEVICE void set(int i, T v) { words[i / A_WORD] |= bits_of(v) << 16 * (i % A_WORD); }
};
template <int V> struct Packed<V, false> {
  T element;
  DEVICE float at(int) const { return to_float(element); }
  DEVICE void set(int, T v) { element = v; }
};

struct Op {
  const void* p[POINTERS];
  float alpha, a, b, c;
};

struct Args {
  const void* x;
  void* y;
  float beta;
  float reserved;
  Op op[OPS];
  Shape shape;
};

DEVICE bool is_plain(const Args& args) {
  bool plain = args.beta == 0.f;
#pragma unroll
  for (int i = 0; i < OPS; i++) plain = plain && args.op[i].alpha == 1.f;
  return plain;
}

DEVICE void make_plain(Args& args) {
  args.beta = 0.f;
#pragma unroll
  for (int i = 0; i < OPS; i++) args.op[i].alpha = 1.f;
}

struct Coord {
  idx y, n, k, p;
};

DEVICE bool is_aligned(const void* p, int bytes) {
  return bytes <= (int)sizeof(T) || ((unsigned long long)p & (bytes - 1)) == 0;
}

template <int V> DEVICE void write_vector(const Args& args, idx at, float* v) {
  Vector<T, V>* y = (Vector<T, V>*)((T*)args.y + at);
  if (__builtin_expect(args.beta != 0.f, 0)) {
    const Vector<T, V> prior = *y;
#pragma unroll
    for (int i = 0; i < V; i++) v[i] = fmaf(args.beta, to_float(prior.at[i]), v[i]);
  }
  Vector<T, V> result;
#pragma unroll
  for (int i = 0; i < V; i++) result.at[i] = from_float<T>(v[i]);
  *y = result;
}

template <class E> DEVICE float param(const Op& o, int which, idx i) { return to_float(((const E*)o.p[which])[i]); }
#define KEEP_ORDER asm volatile("" ::: "memory")

struct Norm {
  float scale, bias, mean, variance, epsilon;
};
template <class E> DEVICE Norm norm_of(const Op& o, idx i) {
  typedef BatchNormInference In;
  return {param<E>(o, In::scale, i), param<E>(o, In::bias, i), param<E>(o, In::mean, i), param<E>(o, In::variance, i),
          o.a};
}
DEVICE float factor_of(const Norm& norm) { return norm.scale / sqrtf(norm.variance + norm.epsilon); }
DEVICE float batch_norm(float x, float mean, float factor, float bias) { return fmaf(x - mean, factor, bias); }
template <int V> DEVICE Packed<V> elements(const Op& o, idx i) {
  const T* from = (const T*)o.p[0] + i;
  if (is_aligned(o.p[0], V * (int)sizeof(T))) return *(const Packed<V>*)from;
  Packed<V> v = {};
#pragma unroll
  for (int e = 0; e < V; e++) v.set(e, from[e]);
  return v;
}


constexpr float LEAST = sizeof(T) == 4 ? 1e-6f : 1e-4f;
DEVICE float reciprocal(float b) {
  const float r = __fdividef(1.f, b);
  return fmaf(r, fmaf(-b, r, 1.f), r);
}
DEVICE float logistic(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0.f ? e : 1.f) * reciprocal(1.f + e);
}
DEVICE float act_pasthru(float x, const Op&) { return x; }
DEVICE float act_logistic(float x, const Op&) { return logistic(x); }
DEVICE float act_tanh(float x, const Op& o) { return o.b * tanhf(o.a * x); }
DEVICE float act_relu(float x, const Op&) { return x > 0.f ? x : 0.f; }
DEVICE float act_softrelu(float x, const Op&) { return fmaxf(x, 0.f) + log1pf(expf(-fabsf(x))); }
DEVICE float act_abs(float x, const Op&) { return fabsf(x); }
DEVICE float act_power(float x, const Op& o) {
  const float base = fmaf(o.b, x, o.a);
  return base <= LEAST ? 0.f : powf(base, o.c);
}
DEVICE float act_clippedrelu(float x, const Op& o) { return fminf(o.a, fmaxf(x, 0.f)); }
DEVICE float act_leakyrelu(float x, const Op& o) { return x > 0.f ? x : o.a * x; }
DEVICE float act_elu(float x, const Op& o) { return x > 0.f ? x : o.a * expm1f(x); }
DEVICE float act_clamp(float x, const Op& o) { return fmaxf(o.a, fminf(o.b, x)); }

DEVICE float prelu(float x, float slope) { return x > 0.f ? x : slope * x; }

DEVICE float times_logistic(float x, float v) {
  const float e = expf(-fabsf(v));
  return (x > 0.f ? x : x * e) * reciprocal(1.f + e);
}
DEVICE float gelu_argument(float x) { return x * fmaf(0.071354816f * x, x, 1.5957691f); }
DEVICE float act_silu(float x, const Op&) { return times_logistic(x, x); }
DEVICE float act_hardsigmoid(float x, const Op&) {
  const float v = x + 3.f;
  return (v < 0.f ? 0.f : v > 6.f ? 6.f : v) * (1.f / 6.f);
}
DEVICE float act_hardswish(float x, const Op& o) { return x * act_hardsigmoid(x, o); }
DEVICE float normal_cdf(float x) {
  if (sizeof(T) == 4) return normcdff(x);
  const float t = fabsf(x), r = __fdividef(1.f, t + 2.5f);
  float p = fmaf(10.728068f, r, -20.928404f);
  p = fmaf(p, r, 11.318586f);
  p = fmaf(p, r, 0.65369183f);
  p = fmaf(p, r, 1.1361965f);
  p = fmaf(p, r, 0.39210796f);
  p = fmaf(p, r, 1.3377491e-4f);
  const float tail = p * __expf(-0.5f * t * t);
  return x > 0.f ? 1.f - tail : tail;
}
DEVICE float act_gelu(float x, const Op&) { return x * normal_cdf(x); }
DEVICE float act_gelutanh(float x, const Op&) { return times_logistic(x, gelu_argument(x)); }
DEVICE float act_mish(float x, const Op&) {
  const float w = expf(-fabsf(x)), above = fmaf(2.f, w, 1.f), below = w * (w + 2.f);
  return x * (x > 0.f ? above : below) * reciprocal(x > 0.f ? fmaf(2.f * w, w, above) : below + 2.f);
}

DEVICE float grad_pasthru(float, float, float dy, const Op&) { return dy; }
DEVICE float grad_logistic(float, float y, float dy, const Op&) { return dy * y * (1.f - y); }
DEVICE float grad_tanh(float, float y, float dy, const Op& o) {
  return fabsf(o.b) <= LEAST ? 0.f : dy * o.a * (o.b - y * y / o.b);
}
DEVICE float grad_relu(float x, float, float dy, const Op&) { return x > 0.f ? dy : 0.f; }
DEVICE float grad_softrelu(float x, float, float dy, const Op&) {
  const float e = expf(fminf(x, 50.f));
  return dy * e / (1.f + e);
}
DEVICE float grad_abs(float x, float, float dy, const Op&) { return x > 0.f ? dy : -dy; }
DEVICE float grad_power(float x, float y, float, const Op& o) {
  const float base = fmaf(o.b, x, o.a);
  return base <= LEAST ? 0.f : o.b * o.c * y / base;
}
DEVICE float grad_clippedrelu(float x, float, float dy, const Op& o) { return x > 0.f && x <= o.a ? dy : 0.f; }
DEVICE float grad_leakyrelu(float x, float, float dy, const Op& o) { return x > 0.f ? dy : o.a * dy; }
DEVICE float grad_elu(float x, float y, float dy, const Op& o) { return x > 0.f ? dy : dy * (y + o.a); }
DEVICE float grad_clamp(float x, float, float dy, const Op& o) { return x > o.a && x <= o.b ? dy : 0.f; }
DEVICE float grad_silu(float x, float, float dy, const Op&) {
  const float s = logistic(x);
  return dy * s * fmaf(x, 1.f - s, 1.f);
}
DEVICE float grad_hardswish(float x, float, float dy, const Op&) {
  return x <= -3.f ? 0.f : x < 3.f ? dy * fmaf(x, 1.f / 3.f, 0.5f) : dy;
}
DEVICE float grad_hardsigmoid(float x, float, float dy, const Op&) {
  return x > -3.f && x < 3.f ? dy * (1.f / 6.f) : 0.f;
}
DEVICE float grad_gelu(float x, float, float dy, const Op&) {
  return dy * fmaf(x, 0.39894228f * expf(-0.5f * x * x), normcdff(x));
}
DEVICE float grad_gelutanh(float x, float, float dy, const Op&) {
  const float s = logistic(gelu_argument(x)), near = fmaxf(-16.f, fminf(16.f, x));
  const float slope = fmaf(0.21406445f * near, near, 1.5957691f);
  return dy * fmaf(x * s * (1.f - s), slope, s);
}
DEVICE float grad_mish(float x, float, float dy, const Op& o) {
  const float t = tanhf(act_softrelu(x, o));
  return dy * fmaf(x * logistic(x), 1.f - t * t, t);
}

#define READS_ELEMENTS true

struct Numbers {
  float bias0;
  Norm norm1;
  float slope2;
  float slope4;
};

struct Channel {
  float term, factor, shift, slope2, slope4;
};

DEVICE Numbers numbers_of(const Args& args, idx k) {
  Numbers n;
  n.bias0 = param<float>(args.op[0], BiasForward::bias, k * args.shape.bias0_c);
  n.norm1 = norm_of<T>(args.op[1], k);
  n.slope2 = param<float>(args.op[2], PReluForward::slope, k * args.shape.slope2_c);
  n.slope4 = param<T>(args.op[4], PReluForward::slope, k * args.shape.slope4_c);
  return n;
}

DEVICE Channel channel_of(const Args& args, const Numbers& n) {
  Channel c;
  c.shift = n.bias0;
  c.shift *= args.op[0].alpha;
  c.term = c.shift - n.norm1.mean;
  c.factor = factor_of(n.norm1);
  c.shift = n.norm1.bias;
  c.shift *= args.op[1].alpha;
  c.factor *= args.op[1].alpha;
  c.slope2 = n.slope2;
  c.slope4 = n.slope4;
  return c;
}

DEVICE Channel channel_of(const Args& args, idx k) {
  const Numbers n = numbers_of(args, k);
  KEEP_ORDER;
  return channel_of(args, n);
}

DEVICE Channel one_of(bool first, const Channel& a, const Channel& b) {
  Channel c;
  c.term = first ? a.term : b.term;
  c.factor = first ? a.factor : b.factor;
  c.shift = first ? a.shift : b.shift;
  c.slope2 = first ? a.slope2 : b.slope2;
  c.slope4 = first ? a.slope4 : b.slope4;
  return c;
}

DEVICE float affine(const Args& args, const Channel& c, float v) {
  return fmaf(fmaf(v, args.op[0].alpha, c.term), c.factor, c.shift);
}

template <int V> struct Residuals {
};

template <int V> DEVICE Residuals<V> residuals_of(const Args& args, idx y) {
  Residuals<V> r;
  return r;
}

template <class F> DEVICE void each_residual(const Args& args, F visit) {
}

template <int V>
DEVICE float chain(const Args& args, const Channel& c, const Residuals<V>& r, int e, float v, const Coord& at) {
  v = prelu(v, c.slope2);
  v *= args.op[2].alpha;
  {
    const Norm norm = norm_of<T>(args.op[3], at.k * args.shape.out_plane + at.p);
    v = batch_norm(v, norm.mean, factor_of(norm), norm.bias);
  }
  v *= args.op[3].alpha;
  v = prelu(v, c.slope4);
  v *= args.op[4].alpha;
  return v;
}


DEVICE void finish(const Args& args, const Channel& channel, float v, const Coord& at) {
  T* y = (T*)args.y + at.y;
  v = chain(args, channel, residuals_of<1>(args, at.y), 0, affine(args, channel, v), at);
  if (args.beta != 0.f) v = fmaf(args.beta, to_float(*y), v);
  *y = from_float<T>(v);
}

template <int V, bool ALONG_K>
DEVICE void chain_vector(const Args& args, const Channel* channel, const Residuals<V>& residuals, const float* v,
                         Coord at, float* out) {
#pragma unroll
  for (int i = 0; i < V; i++) {
    out[i] = chain(args, channel[ALONG_K ? i : 0], residuals, i, v[i], at);
    at.y++;
    if (ALONG_K) at.k++;
    else at.p++;
  }
}

template <int V, bool ALONG_K>
DEVICE void finish_to(const Args& args, const Channel* channel, const Residuals<V>& residuals, const float* v,
                      const Coord& at, float* out) {
#pragma unroll
  for (int i = 0; i < V; i++) out[i] = affine(args, channel[ALONG_K ? i : 0], v[i]);
  chain_vector<V, ALONG_K>(args, channel, residuals, out, at, out);
}

template <int V, bool ALONG_K>
DEVICE void finish_to(const Args& args, const Channel* channel, const float* v, const Coord& at, float* out) {
#pragma unroll
  for (int i = 0; i < V; i++) out[i] = affine(args, channel[ALONG_K ? i : 0], v[i]);
  chain_vector<V, ALONG_K>(args, channel, residuals_of<V>(args, at.y), out, at, out);
}

template <int V, bool ALONG_K>
DEVICE void finish_vector(const Args& args, const Channel* channel, const Residuals<V>& residuals, const float* v,
                          const Coord& at) {
  float out[V];
  finish_to<V, ALONG_K>(args, channel, residuals, v, at, out);
  write_vector<V>(args, at.y, out);
}
template <int V, bool ALONG_K>
DEVICE void finish_vector(const Args& args, const Channel* channel, const float* v, const Coord& at) {
  float out[V];
  finish_to<V, ALONG_K>(args, channel, v, at, out);
  write_vector<V>(args, at.y, out);
}


template <int V> DEVICE void widen(const Packed<V>& from, float* v) {
#pragma unroll
  for (int i = 0; i < V; i++) v[i] = from.at(i);
}

constexpr int TILE = THREADS * UNROLL * V_MAX, PIXELS = THREADS / CHANNEL_THREADS;

struct Column {
  idx first_k, k, pixel, end;
  DEVICE Column(const Shape& s) {
    const idx rows = s.columns.divide((idx)blockIdx.x), column = (idx)blockIdx.x - rows * s.columns.value;
    const int row = threadIdx.x / CHANNEL_THREADS;
    first_k = column * CHANNEL_THREADS * V_MAX;
    k = first_k + threadIdx.x % CHANNEL_THREADS * V_MAX;
    pixel = rows * PIXELS * UNROLL + row;
    end = row < PIXELS && k < s.channels.value ? s.pixels : 0;
  }
};

DEVICE void prefetch_vectors(const Args& args) {
  if (blockIdx.x >= EARLY_BLOCKS) return;
  const Shape& s = args.shape;
  const Column column(s);
  const idx first = (idx)blockIdx.x * TILE;
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    const int offset = (u * THREADS + (int)threadIdx.x) * V_MAX;
    const idx pixel = column.pixel + u * PIXELS;
    const bool exists = CHANNELS_LAST ? pixel < column.end : s.outputs - first > offset;
    const idx at = CHANNELS_LAST ? pixel * s.channels.value + column.k : first + offset;
    if (exists) prefetch_sector((const T*)args.x + at);
  }
}

template <class Name, class Load>
DEVICE void make_table(const Args& args, Channel* table, int count, Name channel, Load load) {
  int j = threadIdx.x;
  Numbers numbers;
  if (j < count) numbers = numbers_of(args, channel(j));
  KEEP_ORDER;
  load();
#pragma unroll 1
  while (j < count) {
    table[j] = channel_of(args, numbers);
    j += THREADS;
    if (j < count) numbers = numbers_of(args, channel(j));
  }
  __syncthreads();
}

template <bool PLAIN, int V> DEVICE void channels_last(Args args, Channel* table) {
  if (PLAIN) make_plain(args);
  const Shape& s = args.shape;
  const Column column(s);
#pragma unroll 1
  for (int part = 0; part < V_MAX; part += V) {
    const idx k = column.k + part;
    Packed<V> x[UNROLL];
    Residuals<V> residuals[UNROLL];
    const auto load = [&] {
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        const idx pixel = column.pixel + u * PIXELS;
        if (pixel < column.end) {
          const idx at = pixel * s.channels.value + k;
          x[u] = *(const Packed<V>*)((const T*)args.x + at);
          residuals[u] = residuals_of<V>(args, at);
        }
      }
    };
    if (CHANNEL_TABLE && part == 0) {
      constexpr int MOST = CHANNEL_THREADS * V_MAX;
      const idx left = s.channels.value - column.first_k;
      make_table(args, table, left < MOST ? (int)left : MOST, [&](int j) { return column.first_k + j; }, load);
    } else {
      load();
    }
    if (column.pixel >= column.end) continue;
    Channel channel[V];
#pragma unroll
    for (int i = 0; i < V; i++) channel[i] = table[(int)(k - column.first_k) + i];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const idx pixel = column.pixel + u * PIXELS;
      if (pixel >= column.end) break;
      const idx n = s.plane.divide(pixel);
      const Coord at = {pixel * s.channels.value + k, n, k, pixel - n * s.plane.value};
      float v[V];
      widen(x[u], v);
      finish_vector<V, true>(args, channel, residuals[u], v, at);
    }
  }
}

template <bool PLAIN, int V> DEVICE void channels_first(Args args, Channel* table) {
  if (PLAIN) make_plain(args);
  const Shape& s = args.shape;
  const idx first = (idx)blockIdx.x * TILE;
  const int count = s.outputs - first < TILE ? (int)(s.outputs - first) : TILE;
  const idx plane = s.plane.divide(first), within = first - plane * s.plane.value;
  const auto coord_of = [&](int offset) {
    const idx j = s.plane.divide(within + offset), n = s.channels.divide(plane + j);
    return Coord{first + offset, n, plane + j - n * s.channels.value, within + offset - j * s.plane.value};
  };
  const auto channel_of_plane = [&](idx j) {
    const idx n = s.channels.divide(plane + j);
    return plane + j - n * s.channels.value;
  };
  const auto channel_at = [&](int offset) {
    const idx j = s.plane.divide(within + offset);
    if (CHANNEL_TABLE) return table[j];
    return channel_of(args, channel_of_plane(j));
  };
#pragma unroll 1
  for (int part = 0; part < V_MAX / V; part++) {
    const auto offset_of = [&](int u) { return ((part * UNROLL + u) * THREADS + (int)threadIdx.x) * V; };
    const T* from = (const T*)args.x + first;
    Packed<V> x[UNROLL];
    Residuals<V> residuals[UNROLL];
    const auto load = [&] {
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        if (offset_of(u) + V <= count) {
          x[u] = *(const Packed<V>*)(from + offset_of(u));
          residuals[u] = residuals_of<V>(args, first + offset_of(u));
        }
      }
    };
    if (CHANNEL_TABLE && part == 0)
      make_table(args, table, (int)s.plane.divide(within + count - 1) + 1, channel_of_plane, load);
    else load();
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const int offset = offset_of(u);
      if (offset + V > count) {
#pragma unroll 1
        for (int i = offset; i < count; i++) finish(args, channel_at(i), to_float(from[i]), coord_of(i));
        break;
      }
      Coord at = coord_of(offset);
      Channel channel = channel_at(offset);
      float v[V];
      widen(x[u], v);
      if (WHOLE_VECTORS || (!CROSSING_WARPS && at.p + V <= s.plane.value)) {
        finish_vector<V, false>(args, &channel, residuals[u], v, at);
        continue;
      }
      constexpr int OF_PLANE = PLANE_PART < V ? PLANE_PART : V;
      if (OF_PLANE > 1) {
#pragma unroll
        for (int e = 0; e < V; e += OF_PLANE) {
          const Channel of = channel_at(offset + e);
          Coord here = coord_of(offset + e);
#pragma unroll
          for (int i = e; i < e + OF_PLANE; i++, here.y++, here.p++)
            v[i] = chain(args, of, residuals[u], i, affine(args, of, v[i]), here);
        }
      } else if (LONG_PLANES) {
        const Channel next = channel_at(offset + V - 1);
        const Coord last = coord_of(offset + V - 1);
#pragma unroll
        for (int e = 0; e < V; e++) {
          const bool beyond = at.p + e >= s.plane.value;
          const Coord here = {at.y + e, beyond ? last.n : at.n, beyond ? last.k : at.k,
                              at.p + e - (beyond ? (idx)s.plane.value : 0)};
          const Channel of = one_of(beyond, next, channel);
          v[e] = chain(args, of, residuals[u], e, affine(args, of, v[e]), here);
        }
      } else {
#pragma unroll
        for (int e = 0; e < V; e++) {
          const Channel of = channel_at(offset + e);
          v[e] = chain(args, of, residuals[u], e, affine(args, of, v[e]), coord_of(offset + e));
        }
      }
      write_vector<V>(args, first + offset, v);
    }
  }
}

template <bool PLAIN, int V> DEVICE void all(const Args& args, Channel* table) {
  if (CHANNELS_LAST) channels_last<PLAIN, V>(args, table);
  else channels_first<PLAIN, V>(args, table);
}

KERNEL(THREADS, AT_ONCE(BLOCKS, 1)) {
  begin_grid([&] { prefetch_vectors(args); });
  DYNAMIC_SHARED(char, shared);
  Channel* table = (Channel*)shared;
  constexpr int BYTES = V_MAX * (int)sizeof(T);
  if (!is_aligned(args.x, BYTES) || !is_aligned(args.y, BYTES)) all<false, 1>(args, table);
  else if (is_plain(args)) all<true, V_MAX>(args, table);
  else all<false, V_MAX>(args, table);
}
