// One thread for each output: any strides, any convolution, or none. Sizes are arguments, so that one binary
// serves every shape.

KERNEL(256) {
  const Shape& s = args.shape;
  for (idx i = (idx)blockIdx.x * 256 + threadIdx.x; i < s.outputs; i += (idx)gridDim.x * 256) {
    Place at;
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
        for (idx th = 0; th < s.taps_h; th++) {
          const idx ih = h * s.stride_h - s.pad_h + th * s.dilation_h;
          if (ih < 0 || ih >= s.in_h) continue;
          for (idx tw = 0; tw < s.taps_w; tw++) {
            const idx iw = w * s.stride_w - s.pad_w + tw * s.dilation_w;
            if (iw < 0 || iw >= s.in_w) continue;
            const T* from = x + id * s.x_d + ih * s.x_h + iw * s.x_w;
            const T* tap = weights + td * s.w_d + th * s.w_h + tw * s.w_w;
#pragma unroll 4
            for (idx c = 0; c < s.channels; c++) v = fmaf(to_float(from[c * s.x_c]), to_float(tap[c * s.w_c]), v);
          }
        }
      }
    }
    finish(args, channel_of(args, at.k), v, at);
  }
}
