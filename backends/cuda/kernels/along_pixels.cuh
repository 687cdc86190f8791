// The epilogue where columns of the product are pixels and results are written along them.
//
// needs macros: DEVICE, READS_ELEMENTS
// needs constants: ATOMS, COOPERATIVE, FILTERS, PART, PARTS_ALONG, PARTS_DOWN, PART_ROWS, PITCH, PRODUCERS, ROWS,
//   TF32X3, TILE_F, WIDTH, Y_VECTOR
// needs sizes: y_c
// needs types: Args, Channel, Column, Coord, Early, Pixels, Shape, Vector, idx
// needs functions: are_finite, column_of, coord_of, finish_to, make_plain, part_address, part_at, pixel_at, pixels_of,
//   stage_accumulators, sum_of_products, write_vector

template <bool PLAIN>
DEVICE void epilogue(Args args, float (&acc)[ATOMS][WIDTH / 2], float* part, const Channel* channels, const Early&,
                     int tile) {
  if (PLAIN) make_plain(args);
  const Shape& s = args.shape;
  const Column column = column_of(tile);
  const Pixels pixels = pixels_of(s, tile);
  const int lane = threadIdx.x % 32, consumer = (threadIdx.x / 128 - PRODUCERS) % COOPERATIVE;
  const int first_filter = consumer * ROWS + threadIdx.x / 32 % 4 * 16;
  const unsigned to = part_address(part);
  // A part's vectors are dealt out row by row, so that those of a lane have only COORDS different pixels. A lane takes
  // TOGETHER of them at a time, those of DOWN rows.
  constexpr int VECTORS = PART / Y_VECTOR, COORDS = VECTORS > 32 ? VECTORS / 32 : 1;
  constexpr int TOGETHER = VECTORS < 16 ? VECTORS / 4 : 4, DOWN = TOGETHER * 32 / VECTORS;
  static_assert(PART_ROWS == 8 && 8 % DOWN == 0 && TOGETHER % COORDS == 0, "a lane's vectors come in whole parts");
  const float* from = part + part_at(lane / VECTORS, lane % VECTORS * Y_VECTOR);
#pragma unroll 1
  for (int along = 0; along < PARTS_ALONG; along++) {
    Coord coords[COORDS];
    bool inside[COORDS];
#pragma unroll
    for (int i = 0; i < COORDS; i++) {
      const int pixel = pixel_at(s, pixels, along * PART + (i * 32 + lane) % VECTORS * Y_VECTOR);
      inside[i] = pixel < pixels.end;
      coords[i] = coord_of(s, pixel, 0);
    }
#pragma unroll 1
    for (int down = 0; down < PARTS_DOWN; down++) {
      // The part's first filter. All of a warp may be beyond the last.
      const int part_filter = first_filter + down / 2 * 64 + down % 2 * 8;
      if (FILTERS % TILE_F != 0 && column.filter + part_filter >= FILTERS) break;
      __syncwarp();
      stage_accumulators<0>(acc, to, along * PARTS_DOWN + down);
      __syncwarp();
      const int below = part_filter + lane / VECTORS;
#pragma unroll 1
      for (int top = 0; top < 8; top += DOWN) {
        float out[TOGETHER][Y_VECTOR];
        idx y[TOGETHER];
        bool writes[TOGETHER];
        // Elements beyond the output are computed too, unless that would read memory: this takes no branch.
#pragma unroll
        for (int j = 0; j < TOGETHER; j++) {
          const int row = j * 32 / VECTORS, column_of_row = j * 32 % VECTORS, f = below + top + row;
          Coord at = coords[j % COORDS];
          at.k = column.group * FILTERS + column.filter + f;
          y[j] = at.y += at.k * s.y_c;
          writes[j] = inside[j % COORDS] && (FILTERS % TILE_F == 0 || column.filter + f < FILTERS);
          if ((!PLAIN || READS_ELEMENTS) && !writes[j]) continue;
          float v[Y_VECTOR];
#pragma unroll
          for (int e = 0; e < Y_VECTOR; e += 4) {
            constexpr int SOME = Y_VECTOR < 4 ? Y_VECTOR : 4;
            const float* at_part = from + top * PITCH + part_at(row, column_of_row * Y_VECTOR + e);
            const Vector<float, SOME> some = *(const Vector<float, SOME>*)at_part;
#pragma unroll
            for (int i = 0; i < SOME; i++) v[e + i] = some.at[i];
          }
          if (TF32X3 && writes[j] && !are_finite(v)) {
            const int pixel = pixel_at(s, pixels, along * PART + (j * 32 + lane) % VECTORS * Y_VECTOR);
            float* const at_part = part + (from - part) + top * PITCH;
#pragma unroll 1
            for (int e = 0; e < Y_VECTOR; e++)
              at_part[part_at(row, column_of_row * Y_VECTOR + e)] =
                  sum_of_products(args, column.group, column.filter + f, pixel + e);
#pragma unroll
            for (int e = 0; e < Y_VECTOR; e++) v[e] = at_part[part_at(row, column_of_row * Y_VECTOR + e)];
          }
          const Channel channel = channels[f];
          finish_to<Y_VECTOR, false>(args, &channel, v, at, out[j]);
        }
#pragma unroll
        for (int j = 0; j < TOGETHER; j++)
          if (writes[j]) write_vector<Y_VECTOR>(args, y[j], out[j]);
      }
    }
  }
}
