// The blocks that share a tile are a cluster, or one block: one launch accumulates and writes the tile.
//
// needs macros: DEVICE
// needs constants: FILTERS, PART_P, PITCH, SLICE, SLICES, SPLIT, THREADS, TILE_F, Y_ALONG_K, Y_VECTOR
// needs sizes: pixels
// needs types: Args, Rows, T, Vector
// needs functions: cluster_arrive, cluster_load, cluster_wait, is_aligned, share_of, write_rows

// Whether this launch only writes what another has accumulated.
DEVICE bool finish_tile(const Args&, float*, int, int, int) { return false; }

// Adds up the accumulators of some rows: those of every slice of every block that shares the tile, in this order.
DEVICE void add_up(float* tile, Rows rows) {
#pragma unroll 1
  for (int i = rows.first * PITCH + threadIdx.x * 4; i < rows.end * PITCH; i += THREADS * 4) {
    Vector<float, 4> sum = {};
#pragma unroll 1
    for (int slice = 0; slice < SLICES; slice++) {
      Vector<float, 4> parts[SPLIT];
#pragma unroll
      for (int rank = 0; rank < SPLIT; rank++) parts[rank] = cluster_load(rank, tile + slice * SLICE + i);
#pragma unroll
      for (int rank = 0; rank < SPLIT; rank++)
#pragma unroll
        for (int e = 0; e < 4; e++) sum.at[e] += parts[rank].at[e];
    }
    *(Vector<float, 4>*)(tile + i) = sum;
  }
}

// Writes the results of the PART_P pixels and all filters whose accumulators are in shared memory. All threads that wrote
// these must have synchronised.
DEVICE void write_tile(const Args& args, float* tile, int first_pixel, int first_filter, int group) {
  const int left = Y_ALONG_K ? args.shape.pixels - first_pixel : FILTERS - first_filter,
            most = Y_ALONG_K ? PART_P : TILE_F;
  const int there = !Y_ALONG_K && FILTERS % TILE_F == 0 ? most : left < most ? left : most;
  const Rows rows = share_of(there);
  if (SPLIT * SLICES > 1) {
    add_up(tile, rows);
    __syncthreads();
    cluster_arrive();
  }
  if (is_aligned(args.y, Y_VECTOR * (int)sizeof(T)))
    write_rows<true>(args, tile, first_pixel, first_filter, group, rows);
  else write_rows<false>(args, tile, first_pixel, first_filter, group, rows);
  // No block may exit, and no thread may write to shared memory again, before all have read it.
  if (SPLIT * SLICES > 1) cluster_wait();
}
