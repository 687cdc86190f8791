// Split-K over a cluster of SPLIT blocks, each of which has a share of the tile's steps, and finishes a share of its rows. A
// block leaves its accumulators where its operands were, and sends every block the rows which that finishes: copies between
// the shared memories of a cluster that the hardware makes as a whole take a fraction of the time of loads from there. Then
// it adds up what it was sent in the order of the blocks' ranks, and runs these rows' epilogue. A block has one tile.
//
// needs macros: DEVICE
// needs constants: ACC_AT, ACC_PITCH, ATOMS, COOPERATIVE, FILTERS, MOVES_BACK, PINGPONG, PIXELS_ARE_ROWS, PRODUCERS, RECTANGLE, RESIDENT,
//   RESIDUALS_EARLY, ROWS, SPLIT, TF32X3, UNIT, UNITS_ACROSS, UNITS_OF_THREAD, WIDTH, Y_VECTOR
// needs sizes: pixels, y_c
// needs types: Args, Barriers, Channel, Column, Coord, Early, Pixels, Rectangle, Rows, Shape, Vector
// needs functions: are_finite, cluster_arrive, cluster_rank, cluster_wait, column_of, coord_of, finish_to, first_loaded, interleaved,
//   mbarrier_expect_tx, mbarrier_wait, pair_of_filters, pixels_of, rectangle_of, residuals_of, row_pixel, share_of, shared_address, sum_of_products, tile_number,
//   write_vector

static_assert(SPLIT == 1 || (PINGPONG == 1 && !RESIDENT), "a block has one tile");
static_assert(SPLIT == 1 || COOPERATIVE * ROWS * ACC_PITCH * 4 <= ACC_AT, "accumulators fit where the operands were");

// Starts to copy from this block's shared memory to that of the block of this rank, whose mbarrier counts the bytes.
DEVICE void cluster_copy(int rank, unsigned to, unsigned from, unsigned bytes, unsigned barrier) {
  unsigned there, counted;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(to), "r"(rank));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(counted) : "r"(barrier), "r"(rank));
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(there),
      "r"(from), "r"(bytes), "r"(counted)
      : "memory");
}

// Waits until no consumer reads operands any more. Nobody writes them either: consumers have seen every step, so what producers
// wrote came before.
DEVICE void operands_end() { asm volatile("bar.sync 2, %0;" ::"n"(COOPERATIVE * 128) : "memory"); }

// The tile's rows that blocks share, of pixels or of filters: those that there are, but all of a rectangle, as those beyond its image lie
// between others.
DEVICE int rows_there(const Pixels& pixels, const Column& column) {
  if (PIXELS_ARE_ROWS && RECTANGLE > 0) return COOPERATIVE * ROWS;
  const int left = PIXELS_ARE_ROWS ? pixels.end - pixels.first : FILTERS - column.filter;
  return left < COOPERATIVE * ROWS ? left : COOPERATIVE * ROWS;
}

// Visits what a thread finishes of this block's share of the rows, UNIT elements of a row at a time: which of the thread's
// they are, the row, and the first of them in it. Threads beside each other have rows beside each other where these are pixels
// of a plane, so that they write side by side.
template <class F> DEVICE void each_unit(const Shape& s, const Rows& rows, F visit) {
  const bool down = PIXELS_ARE_ROWS && Y_VECTOR == 1 && s.y_c != 1;
  const int thread = threadIdx.x - PRODUCERS * 128, count = rows.end - rows.first;
#pragma unroll(RESIDUALS_EARLY ? UNITS_OF_THREAD : 1)
  for (int i = 0; i < UNITS_OF_THREAD; i++) {
    const int at = thread + i * COOPERATIVE * 128;
    if (at < count * UNITS_ACROSS)
      visit(i, rows.first + (down ? at % count : at / UNITS_ACROSS), (down ? at / count : at % UNITS_ACROSS) * UNIT);
  }
}

// The pixel of an element of the tile, beyond the last of all where it has none.
DEVICE int pixel_of_element(const Shape& s, const Pixels& pixels, const Rectangle& rectangle, int row, int from) {
  if (PIXELS_ARE_ROWS && RECTANGLE > 0) return row_pixel(s, rectangle, tile_number(), row);
  const int pixel = pixels.first + (PIXELS_ARE_ROWS ? row : from);
  return pixel < pixels.end ? pixel : (int)s.pixels;
}

// Visits the vectors of such elements that are within the tensor: the first element of the vector, and its coordinates.
template <class F>
DEVICE void each_vector(const Shape& s, const Pixels& pixels, const Rectangle& rectangle, const Column& column, int row,
                        int from, F visit) {
#pragma unroll
  for (int e = 0; e < UNIT; e += Y_VECTOR) {
    const int pixel = pixel_of_element(s, pixels, rectangle, row, from + e), filter = PIXELS_ARE_ROWS ? from + e : row;
    if (pixel >= s.pixels || column.filter + filter >= FILTERS) break;
    visit(e, coord_of(s, pixel, column.group * FILTERS + column.filter + filter));
  }
}

DEVICE void read_residuals_split(const Args& args, Early& early) {
  const Column column = column_of(tile_number());
  const Pixels pixels = pixels_of(args.shape, tile_number());
  const Rectangle rectangle = rectangle_of(args.shape, tile_number());
  each_unit(args.shape, share_of(rows_there(pixels, column)), [&](int i, int row, int from) {
    each_vector(args.shape, pixels, rectangle, column, row, from, [&](int e, const Coord& at) {
      if constexpr (RESIDUALS_EARLY) early.of[(i * UNIT + e) / Y_VECTOR] = residuals_of<Y_VECTOR>(args, at.y);
    });
  });
}

DEVICE void epilogue_split(const Args& args, const float (&acc)[ATOMS][WIDTH / 2], char* memory,
                           const Barriers& barriers, const Channel* channels, const Early& early) {
  const Shape& s = args.shape;
  const Column column = column_of(tile_number());
  const Pixels pixels = pixels_of(s, tile_number());
  const Rectangle rectangle = rectangle_of(s, tile_number());
  const int thread = threadIdx.x - PRODUCERS * 128, lane = thread % 32;
  operands_end();
  float* own = (float*)memory;
#pragma unroll
  for (int atom = 0; atom < ATOMS; atom++)
#pragma unroll
    for (int i = 0; i < WIDTH / 2; i += 2) {
      const int row = thread / 128 * ROWS + atom * 64 + thread / 32 % 4 * 16 + i / 2 % 2 * 8 + lane / 4;
      const int column = PIXELS_ARE_ROWS ? pair_of_filters(i) : i / 4 * 8 + lane % 4 * 2;
      *(Vector<float, 2>*)(own + interleaved(row) * ACC_PITCH + column) = {acc[atom][i], acc[atom][i + 1]};
    }
  // Copies see what these threads wrote.
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("bar.sync 2, %0;" ::"n"(COOPERATIVE * 128) : "memory");
  // Rows are counted from the tile's first pixel on.
  if (MOVES_BACK) own += (pixels.first - first_loaded(s, tile_number())) * ACC_PITCH;

  const int there = rows_there(pixels, column), share = (there + SPLIT - 1) / SPLIT;
  const Rows rows = share_of(there);
  const float* sent = (const float*)(memory + ACC_AT);
  // Every block has begun, and its mbarriers are there.
  cluster_wait();
  if (thread == 0 && rows.first < rows.end)
    mbarrier_expect_tx(barriers.sent(), (SPLIT - 1) * (rows.end - rows.first) * ACC_PITCH * 4);
  if (thread < SPLIT && thread != cluster_rank()) {
    const Rows of = share_of(there, thread);
    if (of.first < of.end)
      cluster_copy(thread, shared_address(sent + cluster_rank() * share * ACC_PITCH),
                   shared_address(own + of.first * ACC_PITCH), (of.end - of.first) * ACC_PITCH * 4, barriers.sent());
  }
  if (rows.first < rows.end) mbarrier_wait(barriers.sent(), 0);
  // What others have sent to this block has left them.
  cluster_arrive();

  each_unit(s, rows, [&](int i, int row, int from) {
    float v[UNIT] = {};
#pragma unroll
    for (int e = 0; e < UNIT; e += 4) {
      Vector<float, 4> parts[SPLIT];
#pragma unroll
      for (int rank = 0; rank < SPLIT; rank++) {
        const float* of =
            rank == cluster_rank() ? own + row * ACC_PITCH : sent + (rank * share + row - rows.first) * ACC_PITCH;
        parts[rank] = *(const Vector<float, 4>*)(of + from + e);
      }
#pragma unroll
      for (int rank = 0; rank < SPLIT; rank++)
#pragma unroll
        for (int n = 0; n < 4; n++) v[e + n] += parts[rank].at[n];
    }
    if (TF32X3 && !are_finite(v)) {
      // No other thread reads these of the block's own accumulators.
#pragma unroll 1
      for (int e = 0; e < UNIT; e++) {
        const int pixel = pixel_of_element(s, pixels, rectangle, row, from + e),
                  filter = PIXELS_ARE_ROWS ? from + e : row;
        if (pixel < s.pixels && column.filter + filter < FILTERS)
          own[row * ACC_PITCH + from + e] = sum_of_products(args, column.group, column.filter + filter, pixel);
      }
#pragma unroll
      for (int e = 0; e < UNIT; e++) v[e] = own[row * ACC_PITCH + from + e];
    }
    Channel channel[UNIT];
#pragma unroll
    for (int e = 0; e < UNIT; e++) channel[e] = channels[PIXELS_ARE_ROWS ? from + e : row];
    each_vector(s, pixels, rectangle, column, row, from, [&](int e, const Coord& at) {
      float out[Y_VECTOR];
      if constexpr (RESIDUALS_EARLY)
        finish_to<Y_VECTOR, PIXELS_ARE_ROWS != 0>(args, channel + e, early.of[(i * UNIT + e) / Y_VECTOR], v + e, at,
                                                  out);
      else finish_to<Y_VECTOR, PIXELS_ARE_ROWS != 0>(args, channel + e, v + e, at, out);
      write_vector<Y_VECTOR>(args, at.y, out);
    });
  });
  // No block may exit before its accumulators have left it.
  cluster_wait();
}
