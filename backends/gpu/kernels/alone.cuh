// These stand for cluster.cuh where no tile is split.
//
// needs macros: DEVICE
// needs constants: SPLIT
// needs types: Vector

static_assert(SPLIT == 1, "blocks that share a tile are a cluster");
DEVICE void cluster_sync() { __syncthreads(); }
DEVICE void cluster_arrive() {}
DEVICE void cluster_wait() {}
DEVICE Vector<float, 4> cluster_load(int, const float* at) { return *(const Vector<float, 4>*)at; }
DEVICE double cluster_load(int, const double* at) { return *at; }
