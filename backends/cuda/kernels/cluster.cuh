// SPLIT blocks that share a tile are a cluster (sm_90 and later): they are on multiprocessors at the same time, and
// read each other's shared memory. None may leave before all have read its own.

#undef CLUSTER
#define CLUSTER __cluster_dims__(SPLIT, 1, 1)

DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
// What threads have written before they meet is there for all of the cluster.
DEVICE void cluster_meet() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  cluster_wait();
}
// Says that this thread reads nothing more of others, which wait for that before they leave. What it has read it has
// used: nothing is released.
DEVICE void cluster_leave() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }

// What the block of this rank has where this block has `at`.
DEVICE Vector<float, 4> sums_of(int rank, const float* at) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"((unsigned)__cvta_generic_to_shared(at)), "r"(rank));
  Vector<float, 4> v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.at[0]), "=f"(v.at[1]), "=f"(v.at[2]), "=f"(v.at[3]) : "r"(there) : "memory");
  return v;
}
