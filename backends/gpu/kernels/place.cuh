// Where output pixel `m`, counted over all images, and filter `k` lie.
DEVICE Place place_of(const Shape& s, int m, int k) {
  Place at;
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
