// 3xTF32: a factor is the sum of a high part, the nearest number of TF32, and a low part, what is left. A product is
// high·high + high·low + low·high; low·low is less than a bit of f32. What is not finite, or is so once it is rounded to
// TF32, has no such parts, and makes sums that are not finite. These are computed anew, in f32.
//
// needs macros: DEVICE
// needs constants: CHANNELS, DILATION_D, DILATION_H, DILATION_W, FILTERS, PAD_D, PAD_H, PAD_W, STRIDE_D, STRIDE_H,
//   STRIDE_W, TAPS_D, TAPS_H, TAPS_W
// needs sizes: in_d, in_h, in_w, out_h, out_plane, out_w, w_c, w_d, w_h, w_k, w_w, x_c, x_d, x_h, x_n, x_w
// needs types: Args, Shape
// needs functions: bits_of, float_of_bits

// TF32 has the upper 19 bits of f32. A low part has at most 12 significant bits, of which `wgmma` cuts off one.
struct Parts {
  unsigned high;
  float low;
};
DEVICE Parts parts_of(float v) {
  Parts parts;
  // Rounded as `cvt.rna.tf32` rounds what is finite. Of what is not a number this may be one, but the low part is none then either.
  parts.high = (bits_of(v) + 0x1000u) & 0xFFFFE000u;
  parts.low = v - float_of_bits(parts.high);
  return parts;
}

DEVICE unsigned low_word_of(const float* v) { return bits_of(parts_of(*v).low); }

// Whether all of some numbers are finite.
template <int N> DEVICE bool are_finite(const float (&v)[N]) {
  float zero = 0.f;
#pragma unroll
  for (int i = 0; i < N; i++) zero = fmaf(v[i], 0.f, zero);
  return zero == 0.f;
}

// The sum of an output's products by multiply-adds of f32: of a pixel, counted over all images, and a filter of a group.
DEVICE float sum_of_products(const Args& args, int group, int filter, int pixel) {
  const Shape& s = args.shape;
  const int n = pixel / s.out_plane, p = pixel % s.out_plane, row = p / s.out_w;
  const int d = row / s.out_h * STRIDE_D - PAD_D, h = row % s.out_h * STRIDE_H - PAD_H,
            w = p % s.out_w * STRIDE_W - PAD_W;
  const float* x = (const float*)args.x + n * s.x_n + group * CHANNELS * s.x_c;
  const float* weights = (const float*)args.op[0].p[0] + (group * FILTERS + filter) * s.w_k;
  float sum = 0.f;
#pragma unroll 1
  for (int t = 0; t < TAPS_D * TAPS_H * TAPS_W; t++) {
    const int td = t / (TAPS_H * TAPS_W), th = t / TAPS_W % TAPS_H, tw = t % TAPS_W;
    const int at_d = d + td * DILATION_D, at_h = h + th * DILATION_H, at_w = w + tw * DILATION_W;
    if ((unsigned)at_d >= (unsigned)s.in_d || (unsigned)at_h >= (unsigned)s.in_h || (unsigned)at_w >= (unsigned)s.in_w)
      continue;
    const float* from = x + at_d * s.x_d + at_h * s.x_h + at_w * s.x_w;
    const float* tap = weights + td * s.w_d + th * s.w_h + tw * s.w_w;
#pragma unroll 1
    for (int c = 0; c < CHANNELS; c++) sum = fmaf(from[c * s.x_c], tap[c * s.w_c], sum);
  }
  return sum;
}
