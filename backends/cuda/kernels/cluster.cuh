// The SPLIT blocks that share a tile are a cluster (sm_90 and later): they run at the same time, and reach each other's
// shared memory (distributed shared memory). None may be reached before it has begun, or exit while others still reach it.
//
// needs macros: DEVICE
// needs constants: SPLIT
// needs types: Vector

#undef CLUSTER
#define CLUSTER __cluster_dims__(SPLIT, 1, 1)

DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
// Waits for all threads of the cluster, which then see what any of them wrote before.
DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  cluster_wait();
}
// Says that this thread's block has begun, or that the thread has what it wanted of other blocks: those that `cluster_wait`
// wait for either. The arrive is relaxed, since nothing that the thread wrote is to be seen behind it.
DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }

// Loads from the block of this rank what lies there at the address that `at` is here.
DEVICE Vector<float, 4> cluster_load(int rank, const float* at) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"((unsigned)__cvta_generic_to_shared(at)), "r"(rank));
  Vector<float, 4> v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.at[0]), "=f"(v.at[1]), "=f"(v.at[2]), "=f"(v.at[3])
               : "r"(there)
               : "memory");
  return v;
}
DEVICE double cluster_load(int rank, const double* at) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"((unsigned)__cvta_generic_to_shared(at)), "r"(rank));
  double v;
  asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(v) : "r"(there) : "memory");
  return v;
}
