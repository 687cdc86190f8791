// cuda.batch_norm_training.v1 on sm_80: 8 elements at a time, 1536 threads a group in 6 blocks, two launches, f64 sums
// Geometry { grid: [96, 1, 1], block: 256, shared: 0 }
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
typedef f16 T;
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
constexpr int SPATIAL{1};
constexpr int BACKWARD{0};
constexpr int ACROSS{0};
constexpr int LINEAR{0};
constexpr int CHANNELS_INNER{0};
constexpr int V_MAX{8};
constexpr int COLUMNS{1};
constexpr int THREADS{256};
constexpr int SPLIT{6};
constexpr int HAS_ACTIVATION{1};
constexpr int OPS = 2;
constexpr int POINTERS = 6;
struct Shape {
  Size out_h;
  Size out_w;
  Size groups;
  Size count;
  Size images;
  Size x_n;
  Size x_c;
  Size x_d;
  Size x_h;
  Size x_w;
  Size y_n;
  Size y_c;
  Size y_d;
  Size y_h;
  Size y_w;
  Size x_step;
  Size y_step;
  Divisor plane;
  Divisor plane_vectors;
  Divisor channels;
  double* scratch;
  Size launch;
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


#define ACTIVATION act_relu
#define GRADIENT grad_relu


DEVICE int tile_number() { return blockIdx.x / SPLIT; }
DEVICE int cluster_rank() { return SPLIT == 1 ? 0 : blockIdx.x % SPLIT; }
template <int STEPS> DEVICE int first_step() { return SPLIT == 1 ? 0 : STEPS * cluster_rank() / SPLIT; }
template <int STEPS> DEVICE int step_count() {
  return SPLIT == 1 ? STEPS : STEPS * (cluster_rank() + 1) / SPLIT - first_step<STEPS>();
}

struct Rows {
  int first, end;
};
DEVICE Rows share_of(int rows, int rank = cluster_rank()) {
  const int share = (rows + SPLIT - 1) / SPLIT, first = rank * share;
  return {first, first + share < rows ? first + share : rows};
}


constexpr int LANES = THREADS / COLUMNS;
constexpr int WALKERS = LANES * SPLIT;
constexpr int GROUPS = ACROSS ? COLUMNS * V_MAX : 1;

struct Walk {
  idx group, next, x, y;
  int column, lane;
  bool active;
};

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

struct Spot {
  idx x, y;
  int from, to;
};

template <int V> DEVICE Spot spot_of(const Shape& s, const Walk& walk, idx i) {
  if (ACROSS) {
    if (LINEAR) return {walk.x + i * s.x_step, walk.y + i * s.y_step, 0, V};
    const idx n = s.plane.divide(i), p = i - n * s.plane.value;
    const idx row = p / s.out_w, w = p % s.out_w, h = row % s.out_h, d = row / s.out_h;
    return {walk.x + n * s.x_n + d * s.x_d + h * s.x_h + w * s.x_w,
            walk.y + n * s.y_n + d * s.y_d + h * s.y_h + w * s.y_w, 0, V};
  }
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

template <int V> DEVICE void store(const Args& args, const Spot& spot, float* v) {
  if (spot.from == 0 && spot.to == V) {
    write_vector<V>(args, spot.y, v);
    return;
  }
#pragma unroll
  for (int e = 0; e < V; e++)
    if (e >= spot.from && e < spot.to) write_vector<1>(args, spot.y + e, v + e);
}

template <int N> struct Sums {
  float from[N] = {};
  float a[N] = {}, b[N] = {};
  double all_a[N] = {}, all_b[N] = {};
  DEVICE void take(int i) {
    all_a[i] += a[i], all_b[i] += b[i];
    a[i] = b[i] = 0.f;
  }
};

template <int N> DEVICE void take_all(Sums<N>& sums) {
#pragma unroll
  for (int i = 0; i < N; i++) sums.take(i);
}

DEVICE double* shared_numbers() {
  __shared__ double numbers[(LANES + 1) * GROUPS];
  return numbers;
}

template <int N> DEVICE void block_sums(const Walk& walk, const double (&v)[N], double* totals) {
  if constexpr (LANES == 1) {
#pragma unroll
    for (int i = 0; i < N; i++) totals[2 * (i * COLUMNS + walk.column)] = v[i];
  } else {
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


DEVICE bool is_summing(const Shape& s) { return s.launch == 0; }
DEVICE bool is_writing(const Shape& s) { return s.launch != 0; }

template <int N> DEVICE void meet(const Shape& s, const Walk& walk, int part, const Sums<N>& sums, Totals<N>& totals) {
  constexpr int WIDTH = 2 * COLUMNS * N, OF_BLOCK = 2 * GROUPS;
  double* const of_tile = s.scratch + (long long)tile_number() * (SPLIT * OF_BLOCK + GROUPS);
  double* const of_part = of_tile + 2 * COLUMNS * part;
  double* const from = of_tile + SPLIT * OF_BLOCK + COLUMNS * part;
  if (s.launch == 0) {
    block_totals<N>(walk, sums, totals);
    __syncthreads();
    const int rank = cluster_rank();
    for (int t = threadIdx.x; t < WIDTH; t += THREADS) of_part[rank * OF_BLOCK + t] = totals.of[t];
    if (rank == 0)
      for (int t = threadIdx.x; t < COLUMNS * N; t += THREADS) from[t] = totals.from[t];
    __syncthreads();
    return;
  }
  constexpr int MOST = THREADS / WIDTH < 16 ? THREADS / WIDTH : 16, PARTS = MOST < 1 ? 1 : MOST;
  static_assert(PARTS * WIDTH <= (LANES + 1) * GROUPS, "shared memory has room for what threads add");
  double* const parts = shared_numbers();
  for (int t = threadIdx.x; t < PARTS * WIDTH; t += THREADS) {
    double sum = 0.0;
#pragma unroll 8
    for (int rank = t / WIDTH; rank < SPLIT; rank += PARTS) sum += of_part[rank * OF_BLOCK + t % WIDTH];
    parts[t] = sum;
  }
  for (int t = threadIdx.x; t < COLUMNS * N; t += THREADS) totals.from[t] = (float)from[t];
  __syncthreads();
  for (int t = threadIdx.x; t < WIDTH; t += THREADS) {
    double sum = 0.0;
#pragma unroll
    for (int i = 0; i < PARTS; i++) sum += parts[i * WIDTH + t];
    totals.of[t] = sum;
  }
  __syncthreads();
}

DEVICE void end_meeting() {}


typedef BatchNormForward Forward;
typedef BatchNormBackward Backward;
template <class P> DEVICE P* operand(const Args& args, int i) { return (P*)args.op[0].p[i]; }

template <int V> DEVICE int of_element(int e) { return ACROSS ? e : 0; }

template <int N, class Body> DEVICE void each_group(const Shape& s, int part, Body body) {
  for (int t = threadIdx.x; t < COLUMNS * N; t += THREADS) {
    const idx slot = (idx)tile_number() * GROUPS + t % COLUMNS * (ACROSS ? V_MAX : 1) + part + t / COLUMNS;
    if (slot < s.groups) body(t, coord_of_group(s, slot).parameter);
  }
}

struct alignas(16) Line {
  float mean, factor, bias;
};

template <int V> DEVICE void forward(const Args& args, const Walk& walk, int part) {
  constexpr int N = ACROSS ? V : 1;
  __shared__ Totals<N> totals;
  __shared__ Line lines[COLUMNS * N];
  const Shape& s = args.shape;
  const T* const inputs[1] = {(const T*)args.x};
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
