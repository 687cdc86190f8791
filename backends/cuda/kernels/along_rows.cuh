// The epilogue of f32 where rows of the product are pixels, the eight rows of a fragment neighbouring ones, and results are written along
// them: from where they are summed, a sector of each of four filters by a warp at a time, so that accumulators need not pass through
// shared memory.
//
// needs macros: DEVICE
// needs constants: ATOMS, COOPERATIVE, FILTERS, FOURS, INTERLEAVED, OF_FOUR, PRODUCERS, ROWS, TF32X3, TILE_F, WIDTH, Y_VECTOR
// needs sizes: y_c
// needs types: Args, Channel, Column, Coord, Early, Pixels, Shape, idx
// needs functions: are_finite, column_of, coord_of, finish_to, make_plain, pixels_of, sum_of_products, take, write_vector

static_assert(ATOMS == 1 && INTERLEAVED == 1 && Y_VECTOR == 1, "a lane has two pixels, eight apart");

template <bool PLAIN>
DEVICE void epilogue(Args args, float (&acc)[ATOMS][WIDTH / 2], float*, const Channel* channels, const Early&,
                     int tile) {
  if (PLAIN) make_plain(args);
  const Shape& s = args.shape;
  const Column column = column_of(tile);
  const Pixels pixels = pixels_of(s, tile);
  const int lane = threadIdx.x % 32, consumer = (threadIdx.x / 128 - PRODUCERS) % COOPERATIVE;
  const int pixel = pixels.first + consumer * ROWS + threadIdx.x / 32 % 4 * 16 + lane / 4;
  if (pixel >= pixels.end) return;
  const bool both = pixel + 8 < pixels.end;
  const Coord coords[2] = {coord_of(s, pixel, 0), coord_of(s, both ? pixel + 8 : pixel, 0)};
#pragma unroll(PLAIN && !TF32X3 ? FOURS : 1)
  for (int four = 0; four < FOURS; four++) {
    float v[OF_FOUR] = {};
    take<0>(acc, four, v);
    const int first = four * 32 + lane % 4 * 2;
    if (TF32X3 && !are_finite(v)) {
#pragma unroll 1
      for (int i = 0; i < OF_FOUR; i++) {
        const int f = column.filter + first + i / 4 * 8 + i % 2, upper = i / 2 % 2;
        if (f >= FILTERS || (upper != 0 && !both)) continue;
        const float sum = sum_of_products(args, column.group, f, pixel + upper * 8);
        // Registers have no index.
#pragma unroll
        for (int j = 0; j < OF_FOUR; j++) v[j] = i == j ? sum : v[j];
      }
    }
    float out[OF_FOUR][1];
    idx y[OF_FOUR];
    bool writes[OF_FOUR];
#pragma unroll
    for (int i = 0; i < OF_FOUR; i++) {
      const int f = first + i / 4 * 8 + i % 2, upper = i / 2 % 2;
      Coord at = coords[upper];
      at.k = column.group * FILTERS + column.filter + f;
      y[i] = at.y += at.k * s.y_c;
      writes[i] = (upper == 0 || both) && f < TILE_F && (FILTERS % TILE_F == 0 || column.filter + f < FILTERS);
      const Channel channel = channels[f < TILE_F ? f : 0];
      if (writes[i]) finish_to<1, false>(args, &channel, &v[i], at, out[i]);
    }
#pragma unroll
    for (int i = 0; i < OF_FOUR; i++)
      if (writes[i]) write_vector<1>(args, y[i], out[i]);
  }
}
