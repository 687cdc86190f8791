// The epilogue where columns of the product are pixels of whole lines, and results are written along them.
//
// needs macros: DEVICE, READS_ELEMENTS
// needs constants: ATOMS, COOPERATIVE, FILTERS, FOURS, OF_FOUR, PRODUCERS, ROWS, TILE_F, WIDTH, Y_LINEAR, Y_PLANAR, Y_VECTOR
// needs sizes: y_c, y_p
// needs types: Args, Channel, Column, Coord, Early, Pixels, Shape
// needs functions: column_of, coord_of, exchange, finish_to, make_plain, of_eight, pixel_at, pixels_of, take, write_vector

static_assert(ATOMS == 1, "a lane has two filters of a tile");

// The coordinates of a pixel of a tile, whose first pixel lies at `origin`: both are in one image.
DEVICE Coord coord_behind(const Shape& s, const Coord& origin, int first, int pixel) {
  if (!Y_LINEAR && !Y_PLANAR) return coord_of(s, pixel, 0);
  Coord at = origin;
  at.p += pixel - first;
  at.y += (pixel - first) * s.y_p;
  return at;
}

template <bool PLAIN>
DEVICE void epilogue(Args args, float (&acc)[ATOMS][WIDTH / 2], float*, const Channel* channels, const Early&,
                     int tile) {
  if (PLAIN) make_plain(args);
  const Shape& s = args.shape;
  const Column column = column_of(tile);
  const Pixels pixels = pixels_of(s, tile);
  const int lane = threadIdx.x % 32, consumer = (threadIdx.x / 128 - PRODUCERS) % COOPERATIVE;
  const int first_filter = consumer * ROWS + threadIdx.x / 32 % 4 * 16 + lane / 4;
  // All of a warp may be beyond the last filter.
  if (FILTERS % TILE_F != 0 && column.filter + first_filter / 16 * 16 >= FILTERS) return;
  constexpr int VECTORS = 8 / Y_VECTOR;
  const Coord origin = coord_of(s, pixels.first, 0);
#pragma unroll(PLAIN ? FOURS : 1)
  for (int four = 0; four < FOURS; four++) {
    float v[OF_FOUR] = {};
    take<0>(acc, four, v);
    exchange<1>(v);
    exchange<2>(v);
    const int first = four * 32 + lane % 4 * 8;
    Coord coords[VECTORS];
    bool inside[VECTORS];
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
      const int pixel = first < WIDTH ? pixel_at(s, pixels, first + i * Y_VECTOR) : pixels.end;
      inside[i] = pixel < pixels.end;
      coords[i] = coord_behind(s, origin, pixels.first, pixel);
    }
#pragma unroll
    for (int row = 0; row < 2; row++) {
      const int f = first_filter + row * 8;
      const Channel channel = channels[f];
#pragma unroll
      for (int i = 0; i < VECTORS; i++) {
        // Elements beyond the output are computed too, unless that would read memory: this takes no branch.
        const bool writes = inside[i] && (FILTERS % TILE_F == 0 || column.filter + f < FILTERS);
        if ((!PLAIN || READS_ELEMENTS) && !writes) continue;
        Coord at = coords[i];
        at.k = column.group * FILTERS + column.filter + f;
        at.y += at.k * s.y_c;
        float some[Y_VECTOR], out[Y_VECTOR];
#pragma unroll
        for (int e = 0; e < Y_VECTOR; e++) some[e] = of_eight(v, row, i * Y_VECTOR + e);
        finish_to<Y_VECTOR, false>(args, &channel, some, at, out);
        if (writes) write_vector<Y_VECTOR>(args, at.y, out);
      }
    }
  }
}
