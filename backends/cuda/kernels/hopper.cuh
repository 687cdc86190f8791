// Hopper's instructions (sm_90a): mbarriers that count bytes, TMA loads, and wgmma. Shared memory is named by its
// 32-bit address.
//
// needs macros: DEVICE
// needs constants: BLOCK_P, DIMS, ROW, TILE_K
// needs types: T

struct alignas(64) TensorMap {
  unsigned long long words[16];
};

DEVICE unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

DEVICE void mbarrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
DEVICE void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
DEVICE void mbarrier_expect_tx(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Waits until the mbarrier's phase of this parity has completed. A phase of parity 1 precedes a new mbarrier's first.
DEVICE void mbarrier_wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred done;\nWAIT_%=:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra WAIT_%=;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// One lane of a whole warp.
DEVICE bool is_elected() {
  unsigned elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
  return elected != 0;
}

// Starts to bring `count` elements from `from` on into L2, by the pieces of 16 bytes that they lie in.
DEVICE void prefetch_l2(const T* from, int count) {
  const unsigned long long first = (unsigned long long)from / 16 * 16;
  const unsigned bytes = (unsigned)(((unsigned long long)(from + count) + 15) / 16 * 16 - first);
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(first), "r"(bytes) : "memory");
}

// Copies bytes that lie side by side: whole numbers of 16 bytes, at multiples of as many.
DEVICE void bulk_load(unsigned to, const T* from, unsigned bytes, unsigned barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

DEVICE void tma_prefetch_map(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

// Loads by the im2col mode of TMA from a map of five dimensions: pixels from the coordinates b, c, d of image n on, of which an
// element lies as far on as the offsets say.
DEVICE void tma_load_im2col_5d(unsigned to, const TensorMap* map, unsigned barrier, int a, int b, int c, int d, int n,
                               unsigned short ob, unsigned short oc, unsigned short od) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10};" ::"r"(to),
      "l"(map), "r"(barrier), "r"(a), "r"(b), "r"(c), "r"(d), "r"(n), "h"(ob), "h"(oc), "h"(od)
      : "memory");
}
// Loads by the im2col mode of TMA: one tap of as many output pixels as the map says, of which the first has its first tap
// at w, h, d of image n, and channels from c on.
DEVICE void tma_load_im2col(unsigned to, const TensorMap* map, unsigned barrier, int c, int w, int h, int d, int n,
                            int tap_w, int tap_h, int tap_d) {
  const unsigned short ow = tap_w, oh = tap_h, od = tap_d;
  if (DIMS == 3) {
    tma_load_im2col_5d(to, map, barrier, c, w, h, d, n, ow, oh, od);
  } else {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(to),
        "l"(map), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(n), "h"(ow), "h"(oh)
        : "memory");
  }
}
// Loads a box of five dimensions, as large as the map says, from these coordinates on.
DEVICE void tma_load_box_5d(unsigned to, const TensorMap* map, unsigned barrier, int a, int b, int c, int d, int e) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(a), "r"(b), "r"(c), "r"(d), "r"(e)
      : "memory");
}
// Loads a box, as large as the map says: channels from c on, positions from w, h, d on, images or filters from n on.
DEVICE void tma_load_box(unsigned to, const TensorMap* map, unsigned barrier, int c, int w, int h, int d, int n) {
  if (DIMS == 3) {
    tma_load_box_5d(to, map, barrier, c, w, h, d, n);
  } else {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(n)
        : "memory");
  }
}

// Loads the filters from k on, and elements of their depth from `depth` on.
DEVICE void tma_load_rows(unsigned to, const TensorMap* map, unsigned barrier, int depth, int k) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(depth), "r"(k)
      : "memory");
}

// Loads as many elements as the map says, from this one of all on.
DEVICE void tma_load_part(unsigned to, const TensorMap* map, unsigned barrier, int at) {
  asm volatile(
      "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3}], [%2];" ::"r"(
          to),
      "l"(map), "r"(barrier), "r"(at)
      : "memory");
}

// Loads BLOCK_P positions of a plane from p on, in channels from c on, of image n.
DEVICE void tma_load_planes(unsigned to, const TensorMap* map, unsigned barrier, int p, int c, int n) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(p), "r"(c), "r"(n)
      : "memory");
}

// Loads whole lines from h on, as many as the map says, in channels from c on, of image n: the map's dimensions are the
// columns of a block, channels, blocks, lines, images.
DEVICE void tma_load_lines(unsigned to, const TensorMap* map, unsigned barrier, int c, int h, int n) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %3, %5, %6}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(0), "r"(c), "r"(h), "r"(n)
      : "memory");
}

// The descriptor of a wgmma operand in shared memory: rows of ROW bytes along the depth, swizzled over ROW bytes as TMA
// writes them.
DEVICE unsigned long long wgmma_descriptor(unsigned at) {
  constexpr unsigned long long SWIZZLE = ROW == 128 ? 1 : ROW == 64 ? 2 : 3, EIGHT_ROWS = 8 * ROW >> 4;
  return (unsigned long long)((at & 0x3FFFF) >> 4) | 1ull << 16 | EIGHT_ROWS << 32 | SWIZZLE << 62;
}
// The same of rows whose groups of eight are this many bytes apart, and need not begin where the swizzle does: it is one of
// addresses.
DEVICE unsigned long long wgmma_descriptor_lines(unsigned at, unsigned eight_rows) {
  constexpr unsigned long long SWIZZLE = ROW == 128 ? 1 : ROW == 64 ? 2 : 3;
  return (unsigned long long)((at & 0x3FFFF) >> 4) | 1ull << 16 | (unsigned long long)(eight_rows >> 4) << 32 |
         SWIZZLE << 62;
}
// The same of columns that are innermost (MN-major): blocks of BLOCK_P columns, each TILE_K rows.
DEVICE unsigned long long wgmma_descriptor_innermost(unsigned at) {
  constexpr unsigned long long SWIZZLE = BLOCK_P == 64 ? 1 : BLOCK_P == 32 ? 2 : 3;
  constexpr unsigned long long BLOCK = TILE_K * BLOCK_P * 2 >> 4, EIGHT_ROWS = 8 * BLOCK_P * 2 >> 4;
  return (unsigned long long)((at & 0x3FFFF) >> 4) | BLOCK << 16 | EIGHT_ROWS << 32 | SWIZZLE << 62;
}
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
// Keeps the compiler from moving accesses of accumulators across wgmma in flight, to which they belong meanwhile.
template <int N> DEVICE void wgmma_fence_accumulators(float (&acc)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(acc[i])::"memory");
}
// Keeps the compiler from giving the registers of rows to anything else before this: wgmma in flight still reads them.
template <int N> DEVICE void wgmma_fence_rows(unsigned (&rows)[N][4]) {
#pragma unroll
  for (int i = 0; i < N; i++)
#pragma unroll
    for (int e = 0; e < 4; e++) asm volatile("" : "+r"(rows[i][e])::"memory");
}
