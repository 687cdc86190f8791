// Words for what Hopper (sm_90a) adds: barriers that count bytes, the copy engine, asynchronous matrix
// products. Shared memory is named by its 32-bit address.

struct alignas(64) TensorMap {
  unsigned long long words[16];
};

DEVICE unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

DEVICE void barrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
DEVICE void barrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
DEVICE void barrier_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Waits for the end of the barrier's phase of this parity. A fresh barrier has ended one of parity 1.
DEVICE void barrier_wait(unsigned barrier, unsigned parity) {
  asm volatile("{\n.reg .pred done;\nWAIT_%=:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@!done bra WAIT_%=;\n}" ::"r"(barrier), "r"(parity) : "memory");
}

// One lane of a whole warp.
DEVICE bool is_elected() {
  unsigned elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
  return elected != 0;
}

DEVICE void prefetch_map(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

// Output pixels whose first tap is at w, h, d of image n, moved by a tap's offset; channels from c on.
DEVICE void copy_pixels(unsigned to, const TensorMap* map, unsigned barrier, int c, int w, int h, int d, int n,
                        int tap_w, int tap_h, int tap_d) {
  const unsigned short ow = tap_w, oh = tap_h, od = tap_d;
  if (DIMS == 3) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10};"
                 ::"r"(to), "l"(map), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(d), "r"(n), "h"(ow), "h"(oh), "h"(od)
                 : "memory");
  } else {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};"
                 ::"r"(to), "l"(map), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(n), "h"(ow), "h"(oh) : "memory");
  }
}
// Filters from k on at one tap, channels from c on.
DEVICE void copy_filters(unsigned to, const TensorMap* map, unsigned barrier, int c, int w, int h, int d, int k) {
  if (DIMS == 3) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
                 ::"r"(to), "l"(map), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(d), "r"(k) : "memory");
  } else {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];"
                 ::"r"(to), "l"(map), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(k) : "memory");
  }
}

// Filters from k on, elements of their depth from `depth` on.
DEVICE void copy_rows(unsigned to, const TensorMap* map, unsigned barrier, int depth, int k) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3, %4}], [%2];" ::"r"(to), "l"(map), "r"(barrier), "r"(depth), "r"(k) : "memory");
}

// A matrix operand: rows of ROW bytes along the depth, swizzled over ROW bytes as the copy engine does it.
DEVICE unsigned long long operand(unsigned at) {
  constexpr unsigned long long SWIZZLE = ROW == 128 ? 1 : ROW == 64 ? 2 : 3, EIGHT_ROWS = 8 * ROW >> 4;
  return (unsigned long long)((at & 0x3FFFF) >> 4) | 1ull << 16 | EIGHT_ROWS << 32 | SWIZZLE << 62;
}
DEVICE void products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> DEVICE void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
// Keeps the compiler from moving accesses of sums across asynchronous products, which own them meanwhile.
template <int N> DEVICE void pin(float (&sums)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(sums[i])::"memory");
}
