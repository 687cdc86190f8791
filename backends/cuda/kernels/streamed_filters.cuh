// Filters that TMA cannot load and that a block has no room for: one launch writes them to memory as the main loop wants them
// in shared memory, for every column of tiles the filters of each step one after the other, and later launches, the next or many,
// bring a step's filters by one bulk copy. A step has STREAMED_TAPS taps, in TILE_K channels. These are SLOTTED where threads
// read pixels of 16 bits to registers: a slot is where a channel's pixels lie in a stage, the channels of each of PHASES after those of
// the one before, and of the four slots that follow one another a thread has one.
//
// needs macros: DEVICE, DYNAMIC_SHARED
// needs constants: BY_PLANES, CHANNELS, COLUMNS, COOPERATIVE, FILTERS, FILTER_STAGES, FILTER_STEPS, FILTER_TILES, PHASES, PINGPONG,
//   PRODUCERS, ROW, SHARED, SLOTTED, SPLIT, STREAMED, STREAMED_TAPS, TAPS, TAPS_H, TAPS_W, TILE_F, TILE_K, W_AT, W_BYTES, W_LOADED
// needs sizes: w_k
// needs types: Barriers, Launch, PipelineState, T
// needs functions: bulk_load, launch_next_grid, low_word_of, mbarrier_expect_tx, mbarrier_wait, prefetch_sector, shared_address,
//   tile_number, tile_stride, tiles_of, wait_for_grids, write_words

static_assert(STREAMED && SPLIT == 1 && W_LOADED == TILE_F * ROW, "as the launch was planned");

// The launch writes filters, or loads what the one before it writes. Else it loads what has been there before.
constexpr unsigned long long PREPARE = 1, JUST_PREPARED = 2;

DEVICE bool prepares(const Launch& launch) { return launch.w.words[1] == PREPARE; }

// Steps of a tile, and bytes of one.
constexpr int STREAMED_STEPS = FILTER_STEPS / STREAMED_TAPS;
constexpr unsigned STREAMED_BYTES = STREAMED_TAPS * W_BYTES;

// The channel at a place of a step's depth.
DEVICE int channel_at(int place) {
  constexpr int OF_PHASE = TILE_K / PHASES;
  if (!SLOTTED) return place;
  const int slot = (place / 16 * 4 + place % 2 * 2 + place / 8 % 2) * 4 + place % 8 / 2;
  return slot % OF_PHASE * PHASES + slot / OF_PHASE;
}

// A word of a filter's tap: these of its channels, if they are before the end.
template <class E> DEVICE unsigned filter_word(const E* from, int c, int second, int end) {
  return (c < end ? from[c * TAPS].bits : 0) | (unsigned)(second < end ? from[second * TAPS].bits : 0) << 16;
}
DEVICE unsigned filter_word(const float* from, int c, int, int end) {
  unsigned word = 0;
  if (c < end) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(from[c * TAPS]));
  return word;
}

// What a step has of a filter's channels lies side by side in memory. Of several taps a warp brings a filter's to shared memory by vectors,
// those of so many filters at once, as far as there is room: read from where they lie, words of channels would be of many lines of the cache.
constexpr int PREPARING_WARPS = (PRODUCERS + PINGPONG * COOPERATIVE) * 4;
constexpr unsigned BROUGHT_BYTES = TILE_K * TAPS * sizeof(T), BROUGHT_ROOM = SHARED / (PREPARING_WARPS * BROUGHT_BYTES);
constexpr int BROUGHT = TAPS == 1 ? 0 : BROUGHT_ROOM < 4 ? BROUGHT_ROOM : 4;
// Taps whose words a thread writes, those of a plane if that is few, or of a line, and words that lie side by side, of a single tap.
constexpr int SOME_TAPS = TAPS_H * TAPS_W <= 9 ? TAPS_H * TAPS_W : TAPS_W, PREPARED_PARTS = TAPS / SOME_TAPS,
              OF_WORD = 4 / (int)sizeof(T), RUN = SOME_TAPS == 1 ? 4 : 1, RUNS = TILE_K / OF_WORD / RUN;
constexpr int PADDED_STEPS = (CHANNELS + TILE_K - 1) / TILE_K;
constexpr bool LOW = W_BYTES > W_LOADED;

// A row of a step of a column of tiles: a filter's channels of the step.
struct PreparedRow {
  int row, chunk, column, filter, channels;
  DEVICE explicit PreparedRow(int number)
      : row(number % TILE_F),
        chunk(number / TILE_F % PADDED_STEPS),
        column(number / TILE_F / PADDED_STEPS),
        filter(column % FILTER_TILES * TILE_F + row) {
    const int left = CHANNELS - chunk * TILE_K;
    channels = column < COLUMNS && filter < FILTERS ? left < TILE_K ? left : TILE_K : 0;
  }
  // The filter's first channel of the step.
  DEVICE const T* from(const Launch& launch) const {
    return (const T*)launch.args.op[0].p[0] +
           ((column / FILTER_TILES * FILTERS + filter) * launch.args.shape.w_k + chunk * (TILE_K * TAPS));
  }
};
constexpr int PREPARED_ROWS = COLUMNS * PADDED_STEPS * TILE_F;

// A thread's words of a row: a word of channels in a plane of taps, or a line, such that what a warp writes lies together. Of a single tap it
// has four, which a swizzle leaves side by side. Channels beyond the last are zeros. Behind the high parts of a tap's filters lie the low
// ones, where they have these.
struct PreparedWords {
  unsigned words[SOME_TAPS][RUN], low[LOW ? SOME_TAPS : 1][RUN];

  DEVICE void read(const T* from, int channels, int part, int run) {
#pragma unroll
    for (int w = 0; w < RUN; w++) {
      const int place = (run * RUN + w) * OF_WORD;
      const int c = channel_at(place), second = channel_at(place + OF_WORD - 1);
#pragma unroll
      for (int i = 0; i < SOME_TAPS; i++) {
        const T* const tap = from + part * SOME_TAPS + i;
        words[i][w] = filter_word(tap, c, second, channels);
        if (LOW) low[LOW ? i : 0][w] = c < channels ? low_word_of(tap + c * TAPS) : 0u;
      }
    }
  }

  DEVICE void write(const Launch& launch, const PreparedRow& at, int part, int run) const {
    // What TMA's swizzle makes of an offset in rows of ROW bytes.
    const unsigned offset = at.row * ROW + run * RUN * 4, mask = ROW == 128 ? 7 : ROW == 64 ? 3 : 1;
    char* const to = (char*)launch.w.words[0] + (offset ^ (offset >> 7 & mask) << 4);
#pragma unroll
    for (int i = 0; i < SOME_TAPS; i++) {
      // All taps of a plane come for some channels before others do, or a column of taps for all channels.
      const int line = part * (SOME_TAPS / TAPS_W) + i / TAPS_W, tap = i % TAPS_W;
      const int of_tile = BY_PLANES
                              ? ((line / TAPS_H * PADDED_STEPS + at.chunk) * TAPS_H + line % TAPS_H) * TAPS_W + tap
                              : (tap * PADDED_STEPS + at.chunk) * TAPS_H + line;
      char* const written = to + (at.column * FILTER_STEPS + of_tile) * (long long)W_BYTES;
      write_words(written, words[i]);
      if (LOW) write_words(written + W_LOADED, low[LOW ? i : 0]);
    }
  }
};

DEVICE void copy_vector(unsigned to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// A warp brings what a row has to shared memory, by vectors of 16 bytes if its elements are such. It waits for these later.
DEVICE void bring_row(const Launch& launch, const PreparedRow& at, T* to, bool aligned) {
  const int lane = threadIdx.x % 32, count = at.channels * TAPS;
  constexpr int VECTOR = 16 / (int)sizeof(T);
  const T* const from = at.from(launch);
  if (aligned) {
#pragma unroll 1
    for (int i = lane * VECTOR; i < count; i += 32 * VECTOR) copy_vector(shared_address(to + i), from + i);
  } else {
#pragma unroll 4
    for (int i = lane; i < count; i += 32) to[i] = from[i];
  }
}

// The first of a warp's rows, which are dealt out to the warps of all blocks, and from each to the next.
DEVICE int first_row_of_warp() { return threadIdx.x / 32 * gridDim.x + blockIdx.x; }
DEVICE int row_stride() { return gridDim.x * PREPARING_WARPS; }

// Starts to bring a warp's first rows into L2.
DEVICE void prefetch_rows(const Launch& launch) {
  constexpr int SECTOR = 32;
#pragma unroll 1
  for (int t = 0; t < BROUGHT; t++) {
    const PreparedRow at(first_row_of_warp() + t * row_stride());
#pragma unroll 1
    for (int i = threadIdx.x % 32 * SECTOR; i < at.channels * TAPS * (int)sizeof(T); i += 32 * SECTOR)
      prefetch_sector((const char*)at.from(launch) + i);
  }
}

DEVICE void prepare_brought(const Launch& launch) {
  DYNAMIC_SHARED(T, brought);
  constexpr int ITEMS = RUNS * PREPARED_PARTS;
  const int lane = threadIdx.x % 32, stride = row_stride();
  T* const rows = brought + threadIdx.x / 32 * (BROUGHT * TILE_K * TAPS);
  const bool aligned = CHANNELS * TAPS * sizeof(T) % 16 == 0 && TILE_K * TAPS * sizeof(T) % 16 == 0 &&
                       ((unsigned long long)launch.args.op[0].p[0] | launch.args.shape.w_k * sizeof(T)) % 16 == 0;
#pragma unroll 1
  for (int first = first_row_of_warp(); first < PREPARED_ROWS; first += BROUGHT * stride) {
    __syncwarp();
#pragma unroll 1
    for (int t = 0; t < BROUGHT; t++)
      bring_row(launch, PreparedRow(first + t * stride), rows + t * (TILE_K * TAPS), aligned);
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncwarp();
#pragma unroll 1
    for (int t = 0; t < BROUGHT && first + t * stride < PREPARED_ROWS; t++) {
      const PreparedRow at(first + t * stride);
#pragma unroll 1
      for (int item = lane; item < ITEMS; item += 32) {
        PreparedWords of;
        of.read(rows + t * (TILE_K * TAPS), at.channels, item % PREPARED_PARTS, item / PREPARED_PARTS);
        of.write(launch, at, item % PREPARED_PARTS, item / PREPARED_PARTS);
      }
    }
  }
}

// The grids before have completed when the next one is launched, whose image is there then.
DEVICE void prepare(const Launch& launch) {
  if constexpr (BROUGHT > 0) prefetch_rows(launch);
  wait_for_grids();
  launch_next_grid();
  if constexpr (BROUGHT > 0) return prepare_brought(launch);
  // Of few taps a thread reads several times as much before it writes, as it waits for the memory in between.
  constexpr int ALL = PREPARED_ROWS * RUNS * PREPARED_PARTS, TOGETHER = SOME_TAPS * RUN < 8 ? 8 / (SOME_TAPS * RUN) : 1;
  const int stride = gridDim.x * blockDim.x;
#pragma unroll 1
  for (int first = blockIdx.x * blockDim.x + threadIdx.x; first < ALL; first += TOGETHER * stride) {
    // All are read before the first is written, as the compiler does not know that these are other places.
    PreparedWords of[TOGETHER];
#pragma unroll
    for (int t = 0; t < TOGETHER; t++) {
      const int item = first + t * stride;
      const PreparedRow at(item / PREPARED_PARTS / RUNS);
      of[t].read(at.from(launch), at.channels, item % PREPARED_PARTS, item / PREPARED_PARTS % RUNS);
    }
#pragma unroll
    for (int t = 0; t < TOGETHER; t++) {
      const int item = first + t * stride;
      if (item >= ALL) continue;
      const PreparedRow at(item / PREPARED_PARTS / RUNS);
      of[t].write(launch, at, item % PREPARED_PARTS, item / PREPARED_PARTS % RUNS);
    }
  }
}

// Waits until the image may be read: where the launch before this one writes filters, it has waited itself before this one was launched.
DEVICE void wait_for_image(const Launch& launch) {
  if (launch.w.words[1] != JUST_PREPARED) wait_for_grids();
}

DEVICE void stream_filters(const Launch& launch, unsigned shared, const Barriers& barriers) {
  // Others were there before this launch, so no grid is waited for.
  if (launch.w.words[1] == JUST_PREPARED) wait_for_grids();
  const char* const first = (const char*)launch.w.words[0];
  PipelineState<FILTER_STAGES> pipe(0);
#pragma unroll 1
  for (int tile = tile_number(); tile < tiles_of(launch.args.shape); tile += tile_stride()) {
    const char* from = first + (long long)(tile % COLUMNS) * STREAMED_STEPS * STREAMED_BYTES;
#pragma unroll 1
    for (int step = 0; step < STREAMED_STEPS; step++, from += STREAMED_BYTES) {
      const unsigned full = barriers.filters_full(pipe.stage);
      mbarrier_wait(barriers.filters_empty(pipe.stage), pipe.phase ^ 1);
      mbarrier_expect_tx(full, STREAMED_BYTES);
      bulk_load(shared + W_AT + pipe.stage * STREAMED_BYTES, (const T*)from, STREAMED_BYTES, full);
      pipe.next();
    }
  }
}
