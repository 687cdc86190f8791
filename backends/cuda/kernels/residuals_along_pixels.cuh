// Residuals of a tile where they lie along pixels.
//
// needs macros: DEVICE
// needs constants: FILTERS, RECTANGLE, TILE_F
// needs sizes: out_plane, out_w, y_c
// needs types: Args, Column, Pixels, Shape, T
// needs functions: column_of, coord_of, each_residual, pixels_of, prefetch_l2

// One channel's pixels of the tile a thread, image by image.
DEVICE void prefetch_residuals(const Args& args, int tile, int thread, int count) {
  each_residual(args, [&](const T* residual) {
    const Shape& s = args.shape;
    const Column column = column_of(tile);
    const Pixels pixels = pixels_of(s, tile);
#pragma unroll 1
    for (int f = thread; f < TILE_F && column.filter + f < FILTERS; f += count)
      if (RECTANGLE > 0) {
#pragma unroll 1
        for (int line = 0; line < pixels.lines; line++)
          prefetch_l2(residual + coord_of(s, pixels.first + line * s.out_w, 0).y +
                          (column.group * FILTERS + column.filter + f) * s.y_c,
                      pixels.columns);
      } else
#pragma unroll 1
        for (int pixel = pixels.first; pixel < pixels.end;) {
          const int left = s.out_plane - pixel % s.out_plane,
                    some = left < pixels.end - pixel ? left : pixels.end - pixel;
          prefetch_l2(residual + coord_of(s, pixel, 0).y + (column.group * FILTERS + column.filter + f) * s.y_c, some);
          pixel += some;
        }
  });
}
