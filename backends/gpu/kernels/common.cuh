// Elements, vectors and arguments. The vendor's text before this defines DEVICE, KERNEL, f16, bf16 and
// their conversions; the generated text between defines T, idx, Shape and OPS.

// Elements that are loaded or stored at once.
template <class E, int V> struct alignas(sizeof(E) * V) Vector { E at[V]; };

DEVICE float to_float(float v) { return v; }
template <class E> DEVICE E from_float(float v);
template <> DEVICE float from_float<float>(float v) { return v; }
template <> DEVICE f16 from_float<f16>(float v) { return f16_from_float(v); }
template <> DEVICE bf16 from_float<bf16>(float v) { return bf16_from_float(v); }

// Arguments of one operator: its pointers in the order of its kind, its alpha, its scalars.
struct Op {
  const void* p[4];
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

// An element of the output: its offset, image, channel and place in the image or volume.
struct Place {
  idx y, n, k, p;
};

DEVICE bool is_aligned(const void* p, int bytes) { return ((unsigned long long)p & (bytes - 1)) == 0; }

// MIOpen's activations. min and max give the other operand for a NaN.
DEVICE float act_pasthru(float x, const Op&) { return x; }
DEVICE float act_logistic(float x, const Op&) { return 1.f / (1.f + expf(-x)); }
DEVICE float act_tanh(float x, const Op& o) { return o.b * tanhf(o.a * x); }
DEVICE float act_relu(float x, const Op&) { return x > 0.f ? x : 0.f; }
DEVICE float act_softrelu(float x, const Op&) { return fmaxf(x, 0.f) + log1pf(expf(-fabsf(x))); }
DEVICE float act_abs(float x, const Op&) { return fabsf(x); }
DEVICE float act_power(float x, const Op& o) {
  const float base = fmaf(o.b, x, o.a);
  return base <= (sizeof(T) == 4 ? 1e-6f : 1e-4f) ? 0.f : powf(base, o.c);
}
DEVICE float act_clippedrelu(float x, const Op& o) { return fminf(o.a, fmaxf(x, 0.f)); }
DEVICE float act_leakyrelu(float x, const Op& o) { return x > 0.f ? x : o.a * x; }
DEVICE float act_elu(float x, const Op& o) { return x > 0.f ? x : o.a * expm1f(x); }
DEVICE float act_clamp(float x, const Op& o) { return fmaxf(o.a, fminf(o.b, x)); }

DEVICE float factor_of(const Op& o, idx i) {
  return ((const float*)o.p[0])[i] / sqrtf(((const float*)o.p[3])[i] + o.a);
}
DEVICE float batch_norm(float x, float mean, float factor, float bias) { return fmaf(x - mean, factor, bias); }
DEVICE float param(const Op& o, int which, idx i) { return ((const float*)o.p[which])[i]; }
DEVICE float element(const Op& o, idx i) { return to_float(((const T*)o.p[0])[i]); }
