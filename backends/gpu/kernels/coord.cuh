// The coordinates of output pixel `m`, counted over all images, and filter `k`.
//
// needs macros: DEVICE
// needs constants: Y_LINEAR, Y_PLANAR
// needs sizes: out_h, out_plane, out_w, y_c, y_d, y_h, y_n, y_p, y_w
// needs types: Coord, Shape

DEVICE Coord coord_of(const Shape& s, int m, int k) {
  Coord at;
  at.n = m / s.out_plane;
  at.p = m % s.out_plane;
  at.k = k;
  at.y = k * s.y_c;
  if (Y_LINEAR) {
    at.y += m * s.y_p;
  } else if (Y_PLANAR) {
    at.y += at.n * s.y_n + at.p * s.y_p;
  } else {
    const int row = at.p / s.out_w;
    at.y += at.n * s.y_n + row / s.out_h * s.y_d + row % s.out_h * s.y_h + at.p % s.out_w * s.y_w;
  }
  return at;
}
