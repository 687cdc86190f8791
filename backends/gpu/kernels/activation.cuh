// Activations and their gradients, by the names of the modes. Each compiles to nothing where it is not used.
//
// needs macros: DEVICE
// needs types: Op, T

// MIOpen's. min and max give the other operand for a NaN.
constexpr float LEAST = sizeof(T) == 4 ? 1e-6f : 1e-4f;
// 1 / b for a b within [1, 8], to less than 1 unit in the last place. An exact quotient has to look for numbers at the ends of
// the range and calls a function for them, which takes longer than the rest of a tile's epilogue.
DEVICE float reciprocal(float b) {
  const float r = __fdividef(1.f, b);
  return fmaf(r, fmaf(-b, r, 1.f), r);
}
// 1 / (1 + e^-x), by an exponential of at most 1.
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

// An operator of its own, whose slopes are the channels'.
DEVICE float prelu(float x, float slope) { return x > 0.f ? x : slope * x; }

// PyTorch's. NaN gives NaN, and so does -inf where x is multiplied by what goes to 0.
//
// x / (1 + e^-v) for a v that has the sign of x: exponentials that are used are at most 1.
DEVICE float times_logistic(float x, float v) {
  const float e = expf(-fabsf(v));
  return (x > 0.f ? x : x * e) * reciprocal(1.f + e);
}
// 2 sqrt(2 / pi) * (x + 0.044715 x^3)
DEVICE float gelu_argument(float x) { return x * fmaf(0.071354816f * x, x, 1.5957691f); }
DEVICE float act_silu(float x, const Op&) { return times_logistic(x, x); }
DEVICE float act_hardsigmoid(float x, const Op&) {
  const float v = x + 3.f;
  return (v < 0.f ? 0.f : v > 6.f ? 6.f : v) * (1.f / 6.f);
}
DEVICE float act_hardswish(float x, const Op& o) { return x * act_hardsigmoid(x, o); }
// The normal distribution's share below x, of 16 bits to a relative error of 2e-5, which is a twenty-fifth of what rounding them has.
DEVICE float normal_cdf(float x) {
  if (sizeof(T) == 4) return normcdff(x);
  // With t = |x| what lies below -t is e^(-t^2 / 2) times a polynomial of 1 / (t + 2.5), of the least relative error up to 14.
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
  // With w = e^-|x| the tanh is (1 + 2w) / (1 + 2w + 2w^2) above 0 and w (w + 2) / (w (w + 2) + 2) below.
  const float w = expf(-fabsf(x)), above = fmaf(2.f, w, 1.f), below = w * (w + 2.f);
  return x * (x > 0.f ? above : below) * reciprocal(x > 0.f ? fmaf(2.f * w, w, above) : below + 2.f);
}

// The gradients with respect to the input x, given the output y. MIOpen's of POWER leaves dy out.
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
  // The slope counts where the logistic is not 0 or 1: elsewhere it may overflow.
  const float s = logistic(gelu_argument(x)), near = fmaxf(-16.f, fminf(16.f, x));
  const float slope = fmaf(0.21406445f * near, near, 1.5957691f);
  return dy * fmaf(x * s * (1.f - s), slope, s);
}
DEVICE float grad_mish(float x, float, float dy, const Op& o) {
  const float t = tanhf(act_softrelu(x, o));
  return dy * fmaf(x * logistic(x), 1.f - t * t, t);
}
