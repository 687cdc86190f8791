// One thread for each output: any strides, any convolution, or none. Sizes are arguments, so that one binary
// serves every shape. There are more of them than a wave of AMD's has scalar registers: each part of the kernel reads
// those that it uses.
//
// needs macros: KERNEL, WIDE_ROUNDS
// needs constants: CHANNELS_LAST, HAS_CONV
// needs sizes: channels, dilation_d, dilation_h, dilation_w, filters_per_group, in_d, in_h, in_w, out_h, out_k,
//   out_plane, out_w, outputs, pad_d, pad_h, pad_w, stride_d, stride_h, stride_w, taps_d, taps_h, taps_w, threads, w_c,
//   w_d, w_h, w_k, w_w, x_c, x_d, x_h, x_n, x_w, y_c, y_d, y_h, y_n, y_w
// needs types: Args, Coord, Shape, T, idx
// needs functions: begin_grid, channel_of, finish, reread, to_float

// Channels of a tap that are read ahead.
constexpr int ROUNDS = sizeof(idx) == 4 ? 4 : WIDE_ROUNDS;

KERNEL(256) {
  begin_grid();
  for (idx i = (idx)blockIdx.x * 256 + threadIdx.x; i < args.shape.outputs; i += args.shape.threads) {
    const Shape& s = reread(args).shape;
    Coord at;
    if (CHANNELS_LAST) {
      at.k = i % s.out_k;
      const idx pixel = i / s.out_k;
      at.p = pixel % s.out_plane;
      at.n = pixel / s.out_plane;
    } else {
      at.p = i % s.out_plane;
      const idx plane = i / s.out_plane;
      at.k = plane % s.out_k;
      at.n = plane / s.out_k;
    }
    const idx row = at.p / s.out_w, w = at.p % s.out_w, h = row % s.out_h, d = row / s.out_h;
    at.y = at.n * s.y_n + at.k * s.y_c + d * s.y_d + h * s.y_h + w * s.y_w;
    const T* x = (const T*)args.x + at.n * s.x_n;
    float v;
    if (!HAS_CONV) {
      v = to_float(x[at.k * s.x_c + d * s.x_d + h * s.x_h + w * s.x_w]);
    } else {
      v = 0.f;
      x += at.k / s.filters_per_group * s.channels * s.x_c;
      const T* weights = (const T*)args.op[0].p[0] + at.k * s.w_k;
      for (idx td = 0; td < s.taps_d; td++) {
        const idx id = d * s.stride_d - s.pad_d + td * s.dilation_d;
        if (id < 0 || id >= s.in_d) continue;
        const Shape& slice = reread(args).shape;
        for (idx th = 0; th < slice.taps_h; th++) {
          const idx ih = h * slice.stride_h - slice.pad_h + th * slice.dilation_h;
          if (ih < 0 || ih >= slice.in_h) continue;
          const Shape& line = reread(args).shape;
          for (idx tw = 0; tw < line.taps_w; tw++) {
            const idx iw = w * line.stride_w - line.pad_w + tw * line.dilation_w;
            if (iw < 0 || iw >= line.in_w) continue;
            const T* from = x + id * line.x_d + ih * line.x_h + iw * line.x_w;
            const T* tap = weights + td * line.w_d + th * line.w_h + tw * line.w_w;
#pragma unroll ROUNDS
            for (idx c = 0; c < line.channels; c++)
              v = fmaf(to_float(from[c * line.x_c]), to_float(tap[c * line.w_c]), v);
          }
        }
      }
    }
    const Args& rest = reread(args);
    finish(rest, channel_of(rest, at.k), v, at);
  }
}
