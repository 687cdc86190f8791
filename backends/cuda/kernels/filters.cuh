// Filters whose channels are not neighbours in memory, or that do not start at multiples of 16 bytes, which TMA cannot load:
// the consumers bring a block's filters, once, and write them as TMA would. They lie in shared memory by columns of taps,
// by TILE_K channels within, then by taps of the column.
//
// A warp takes the same channels of a filter at a time, whose taps lie side by side: it reads them in vectors, passes them
// through its part of the epilogue's memory, and a lane takes two channels from there and writes a word for every tap.
//
// needs macros: DEVICE
// needs constants: CHANNELS, COOPERATIVE, FILTERS, FILTER_STEPS, PART_FLOATS, PINGPONG, PRODUCERS, RESIDENT, ROW,
//   SPLIT, TAPS, TAPS_H, TAPS_W, TILE_F, TILE_K, W_AT, W_BYTES, W_VECTOR
// needs sizes: w_k
// needs types: Args, Column, T, Vector, idx
// needs functions: column_of, tile_number

static_assert(RESIDENT && SPLIT == 1 && sizeof(T) == 2, "filters are brought once");

// What TMA's swizzle makes of an offset in rows of ROW bytes.
DEVICE unsigned swizzled(unsigned at) { return at ^ (at >> 7 & (ROW == 128 ? 7 : ROW == 64 ? 3 : 1)) << 4; }

// Channels that a warp takes at a time, the elements of these, and vectors of them that a lane reads.
constexpr int FILTER_CHANNELS = CHANNELS <= 16 || 32 * TAPS * 2 > PART_FLOATS * 4   ? 16
                                : CHANNELS <= 32 || 64 * TAPS * 2 > PART_FLOATS * 4 ? 32
                                                                                    : 64;
constexpr int FILTER_ELEMENTS = FILTER_CHANNELS * TAPS, FILTER_VECTORS = (FILTER_ELEMENTS / W_VECTOR + 31) / 32;
static_assert(FILTER_ELEMENTS * 2 <= PART_FLOATS * 4, "a part has room");
// How many filters a warp has on their way at once.
constexpr int FILTERS_AHEAD = 4;

DEVICE void rearrange_filters(const Args& args, char* memory, float* part) {
  constexpr int CHANNEL_STEPS = (CHANNELS + TILE_K - 1) / TILE_K, PADDED = CHANNEL_STEPS * TILE_K;
  constexpr int ACROSS = (PADDED + FILTER_CHANNELS - 1) / FILTER_CHANNELS, COUNT = TILE_F * ACROSS;
  static_assert(FILTER_STEPS == CHANNEL_STEPS * TAPS, "as the launch was planned");
  constexpr int WARPS = PINGPONG * COOPERATIVE * 4;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - PRODUCERS * 4;
  const idx pitch = args.shape.w_k;
  const Column column = column_of(tile_number());
  const T* const first = (const T*)args.op[0].p[0] + (column.group * FILTERS + column.filter) * pitch;
  T* const staged = (T*)part;
#pragma unroll 1
  for (int at = warp; at < COUNT; at += FILTERS_AHEAD * WARPS) {
    Vector<T, W_VECTOR> v[FILTERS_AHEAD][FILTER_VECTORS];
#pragma unroll
    for (int i = 0; i < FILTERS_AHEAD; i++) {
      const int f = (at + i * WARPS) / ACROSS, c = (at + i * WARPS) % ACROSS * FILTER_CHANNELS;
      const int left = at + i * WARPS < COUNT && column.filter + f < FILTERS ? (CHANNELS - c) * TAPS : 0;
#pragma unroll
      for (int j = 0; j < FILTER_VECTORS; j++) {
        const int element = (j * 32 + lane) * W_VECTOR;
        v[i][j] = {};
        if (element < FILTER_ELEMENTS && element < left)
          v[i][j] = *(const Vector<T, W_VECTOR>*)(first + f * pitch + c * TAPS + element);
      }
    }
#pragma unroll
    for (int i = 0; i < FILTERS_AHEAD; i++) {
      const int f = (at + i * WARPS) / ACROSS, c = (at + i * WARPS) % ACROSS * FILTER_CHANNELS + lane * 2;
      __syncwarp();
#pragma unroll
      for (int j = 0; j < FILTER_VECTORS; j++)
        if ((j * 32 + lane) * W_VECTOR < FILTER_ELEMENTS)
          *(Vector<T, W_VECTOR>*)(staged + (j * 32 + lane) * W_VECTOR) = v[i][j];
      __syncwarp();
      if (at + i * WARPS >= COUNT || lane * 2 >= FILTER_CHANNELS || c >= PADDED) continue;
      // All are read before the first is written: a read behind a write would wait for it.
      unsigned words[TAPS];
#pragma unroll
      for (int t = 0; t < TAPS; t++)
        words[t] = staged[lane * 2 * TAPS + t].bits | (unsigned)staged[(lane * 2 + 1) * TAPS + t].bits << 16;
      char* const to = memory + W_AT + c / TILE_K * TAPS_H * W_BYTES + swizzled(f * ROW + c % TILE_K * 2);
#pragma unroll
      for (int t = 0; t < TAPS; t++)
        *(unsigned*)(to + (t % TAPS_W * CHANNEL_STEPS * TAPS_H + t / TAPS_W) * W_BYTES) = words[t];
    }
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("bar.sync 1, %0;" ::"n"(PINGPONG * COOPERATIVE * 128) : "memory");
}
