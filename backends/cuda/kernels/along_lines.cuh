// The epilogue where columns of the product are pixels of whole lines, and results are written along them. A lane has pairs of
// neighbours in every eight of a filter's pixels. Four lanes exchange these, such that each has all of one eight in four: then
// accumulators need not pass through shared memory.
//
// needs macros: DEVICE, READS_ELEMENTS
// needs constants: ATOMS, COOPERATIVE, FILTERS, OF_FOUR, PRODUCERS, ROWS, TILE_F, WIDTH, Y_LINEAR, Y_PLANAR, Y_VECTOR
// needs sizes: y_c, y_p
// needs types: Args, Channel, Column, Coord, Early, Pixels, Shape
// needs functions: column_of, coord_of, finish_to, make_plain, pixel_at, pixels_of, take, write_vector

static_assert(ATOMS == 1, "a lane has two filters of a tile");

// Exchanges with the lane whose number differs in this bit: a lane keeps the eights whose number has the bit as its own has it,
// and gets the other lane's share of these for what it had of the others.
template <int BIT> DEVICE void exchange(float (&v)[OF_FOUR]) {
  const bool has = (threadIdx.x & BIT) != 0;
#pragma unroll
  for (int i = 0; i < OF_FOUR; i++) {
    if ((i / 4 & BIT) != 0) continue;
    float &without = v[i], &with = v[i + 4 * BIT];
    float got;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(got) : "f"(has ? without : with), "n"(BIT));
    without = has ? got : without;
    with = has ? with : got;
  }
}

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
#pragma unroll(PLAIN ? (WIDTH + 31) / 32 : 1)
  for (int four = 0; four < (WIDTH + 31) / 32; four++) {
    float v[OF_FOUR] = {};
    take<0>(acc[0], four, v);
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
        for (int e = 0; e < Y_VECTOR; e++) {
          const int of_eight = i * Y_VECTOR + e;
          some[e] = v[of_eight / 2 * 4 + row * 2 + of_eight % 2];
        }
        finish_to<Y_VECTOR, false>(args, &channel, some, at, out);
        if (writes) write_vector<Y_VECTOR>(args, at.y, out);
      }
    }
  }
}
