// The epilogue where rows of the product are pixels, a lane has two neighbouring ones of them, and results are written along them: from
// where they are summed, as words where these are a word in memory, which with planes of an odd number they are of every second filter.
//
// needs macros: DEVICE, READS_ELEMENTS
// needs constants: ATOMS, COOPERATIVE, FILTERS, FOURS, INTERLEAVED, OF_FOUR, PRODUCERS, ROWS, TILE_F, WIDTH, Y_VECTOR
// needs sizes: y_c
// needs types: Args, Channel, Column, Coord, Early, Pixels, Shape, idx
// needs functions: column_of, coord_of, finish_to, make_plain, pixels_of, take, write_vector

static_assert(ATOMS == 1 && INTERLEAVED == 2, "a lane has two neighbouring pixels");

template <bool PLAIN>
DEVICE void epilogue(Args args, float (&acc)[ATOMS][WIDTH / 2], float*, const Channel* channels, const Early&,
                     int tile) {
  if (PLAIN) make_plain(args);
  const Shape& s = args.shape;
  const Column column = column_of(tile);
  const Pixels pixels = pixels_of(s, tile);
  const int lane = threadIdx.x % 32, consumer = (threadIdx.x / 128 - PRODUCERS) % COOPERATIVE;
  const int pixel = pixels.first + consumer * ROWS + threadIdx.x / 32 % 4 * 16 + lane / 4 * 2;
  if (pixel >= pixels.end) return;
  // Planes of an even number end with a pair.
  const bool both = Y_VECTOR > 1 || pixel + 1 < pixels.end;
  const Coord first = coord_of(s, pixel, 0);
#pragma unroll(PLAIN ? FOURS : 1)
  for (int four = 0; four < FOURS; four++) {
    float v[OF_FOUR] = {};
    take<0>(acc, four, v);
    float out[OF_FOUR / 2][2];
    idx y[OF_FOUR / 2];
    bool writes[OF_FOUR / 2];
#pragma unroll
    for (int i = 0; i < OF_FOUR / 2; i++) {
      const int f = four * 32 + i / 2 * 8 + lane % 4 * 2 + i % 2;
      Coord at = first;
      at.k = column.group * FILTERS + column.filter + f;
      y[i] = at.y += at.k * s.y_c;
      writes[i] = f < TILE_F && (FILTERS % TILE_F == 0 || column.filter + f < FILTERS);
      if (!writes[i]) continue;
      const float pair[2] = {v[i / 2 * 4 + i % 2], v[i / 2 * 4 + 2 + i % 2]};
      const Channel channel = channels[f];
      if (Y_VECTOR > 1 || !READS_ELEMENTS) {
        finish_to<2, false>(args, &channel, pair, at, out[i]);
      } else {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          if (e > 0 && !both) break;
          finish_to<1, false>(args, &channel, pair + e, at, out[i] + e);
          at.y++, at.p++;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < OF_FOUR / 2; i++) {
      if (!writes[i]) continue;
      if (Y_VECTOR > 1 || (both && y[i] % 2 == 0)) {
        write_vector<2>(args, y[i], out[i]);
      } else {
        write_vector<1>(args, y[i], out[i]);
        if (both) write_vector<1>(args, y[i] + 1, out[i] + 1);
      }
    }
  }
}
