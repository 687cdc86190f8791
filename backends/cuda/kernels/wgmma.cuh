// Convolution on Hopper's tensor cores as an implicit matrix product (sm_90a). The kernel is persistent and warp
// specialised. The first PRODUCERS warpgroups of a block bring operands and the parameters of channels into shared
// memory; the consumer warpgroups behind them multiply with wgmma and run the epilogue. COOPERATIVE consumer
// warpgroups share a tile, and each computes ATOMS * 64 rows of it. PINGPONG sets of them alternate between the block's
// tiles, so that one set multiplies while another is in its epilogue. The producers run as many stages ahead as there
// are, also while a tile is in its epilogue. Rows of the product are pixels and columns are filters (PIXELS_ARE_ROWS),
// or the other way round. PIXELS_INNERMOST says that pixels lie in a stage as they do in an image's planes, BLOCK_P side
// by side; a tile then stays within an image, and has LINES whole lines of it if that is not 0. RECTANGLE is how
// many columns a tile has that is a rectangle of an output's plane, else 0. INTERLEAVED is how far apart the pixels of
// eight neighbouring rows lie. RESIDENT says that a block's filters never change: they are loaded once, by the consumers if they are
// REARRANGED. STREAMED says that they come by FILTER_STAGES stages of their own, as rows, or from where an earlier launch has prepared
// them. FILTER_ROOM is how many taps' filters shared memory has room for. TF32X3 says that products of f32 are three of TF32, for which columns of the product have two parts in shared memory; where these are filters, threads split what TMA loads.
// A tile's last OVERLAP pixels are covered by the next one of its image, if there is one.
// The text behind this one says how operands come (`produce`), how they are multiplied (`mainloop`), and how accumulators
// are written (`epilogue`).
//
// needs macros: CLUSTER, DEVICE, DYNAMIC_SHARED
// needs constants: ATOMS, CHANNEL_PRODUCERS, CHANNEL_STAGES, CHANNEL_VALUES, CONSUMER_REGISTERS, COOPERATIVE, COVERED_P,
//   FILTERS, FILTERS_BY_LANE, FILTER_ROOM, FILTER_STAGES, FULL_ARRIVALS, GROUPS, INTERLEAVED, LINES, LOADED_P, MOVES_BACK, OCCUPANCY, OVERLAP, PASSED, PINGPONG,
//   PIXELS_ARE_ROWS, PIXELS_INNERMOST, PREFETCHED, PRODUCERS, PRODUCER_REGISTERS, RAW_BYTES, RAW_STAGES, REARRANGED, RECTANGLE, RESIDENT,
//   RESIDUALS_EARLY, ROW, ROW_LOADED, SHARED, SPLIT, STAGES, STEPS, STREAMED, TABLE_BYTES, TAPS_D, TAPS_H, TAPS_W, TF32X3, TILE_F, TILE_P, Y_VECTOR
// needs sizes: image_tiles, out_h, out_plane, out_w, pixels
// needs types: Args, Channel, Residuals, Shape, T, TensorMap
// needs functions: affine, channel_of, cluster_arrive, cluster_wait, is_plain, launch_next_grid, mbarrier_arrive, mbarrier_init,
//   mbarrier_wait, prefetch_sector, shared_address, tile_number, tma_prefetch_map, wait_for_grids

// Where filters are STREAMED and not rows, the second map's first word is the address of prepared ones, and its second one says what the
// launch does about them. Where operands are reordered, a launch without maps does that, to the address that is the second map's first
// word.
struct Launch {
  TensorMap x, w;
  Args args;
};

constexpr int TAPS = TAPS_D * TAPS_H * TAPS_W;
constexpr int ROWS = ATOMS * 64, WIDTH = PIXELS_ARE_ROWS ? TILE_F : TILE_P;
static_assert((PIXELS_ARE_ROWS ? TILE_P : TILE_F) == COOPERATIVE * ROWS,
              "a set of consumer warpgroups computes a tile");
constexpr int FILTER_TILES = (FILTERS + TILE_F - 1) / TILE_F;
constexpr int COLUMNS = GROUPS * FILTER_TILES;
// Pixels of a stage, and of a line of the tile.
static_assert(LINES == 0 || TILE_P % LINES == 0, "lines are whole");
constexpr int LINE = LINES == 0 ? TILE_P : TILE_P / LINES;
// Bytes of pixels that come into a stage, which may be less than their rows have, those of a part of them, since swizzled rows repeat after 1024 bytes, and those of
// all parts. The same of a step's filters of a tap.
constexpr bool FILTERS_IN_PARTS = TF32X3 && PIXELS_ARE_ROWS;
constexpr unsigned X_LOADED = LOADED_P * ROW_LOADED, X_PART = (LOADED_P * ROW + 1023) / 1024 * 1024;
constexpr unsigned X_BYTES = X_PART * (TF32X3 && !PIXELS_ARE_ROWS ? 2 : 1);
constexpr unsigned W_LOADED = TILE_F * ROW_LOADED, W_BYTES = TILE_F * ROW * (FILTERS_IN_PARTS ? 2 : 1);
static_assert(X_LOADED <= X_PART && W_LOADED <= W_BYTES, "rows have room");
// The persistent tile scheduler: a block's first tile is `tile_number()`, and its next one `tile_stride()` further.
DEVICE int tile_stride() { return gridDim.x / SPLIT; }

// Where a warp's epilogue passes its accumulators through shared memory, it does so in parts of PART_ROWS rows times PART columns, which
// are no more than a narrow tile has, so that every lane has something to finish.
constexpr int PART = WIDTH > 32 ? 64 : WIDTH > 16 ? 32 : 16, PART_ROWS = PART == 64 ? 8 : 16;
constexpr int PARTS_ALONG = (WIDTH + PART - 1) / PART, PITCH = PART + 8, PART_FLOATS = PART_ROWS * PITCH;

// Offsets in shared memory, which starts at a multiple of 1024 bytes.
constexpr unsigned W_AT = STAGES * X_BYTES;
constexpr unsigned RAW_AT = W_AT + FILTER_ROOM * W_BYTES, ACC_AT = RAW_AT + RAW_STAGES * RAW_BYTES;
// Here lie the parts of all warps, if any, or what the blocks of a cluster send of the accumulators of a tile that they share.
constexpr int ACC_PITCH = WIDTH + 4;
constexpr unsigned CHANNELS_AT = ACC_AT + PASSED;
static_assert(PASSED == 0 ||
                  PASSED == (SPLIT > 1 ? COOPERATIVE * ROWS * ACC_PITCH : PINGPONG * COOPERATIVE * 4 * PART_FLOATS) * 4,
              "what accumulators pass through is counted");
constexpr unsigned TABLE_AT = (CHANNELS_AT + CHANNEL_STAGES * TILE_F * CHANNEL_VALUES * 4 + 15) / 16 * 16;
constexpr unsigned BARRIERS_AT = TABLE_AT + TABLE_BYTES;
static_assert(CHANNEL_VALUES == 0 || sizeof(Channel) == CHANNEL_VALUES * 4, "a channel's numbers are counted");
constexpr int PARTS_BARRIERS = !FILTERS_IN_PARTS || STREAMED ? 0 : RESIDENT ? 1 : STAGES;
static_assert(BARRIERS_AT +
                      (2 * (STAGES + CHANNEL_STAGES + FILTER_STAGES + RAW_STAGES) + PINGPONG + 1 + PARTS_BARRIERS) * 8 +
                      1024 <=
                  SHARED,
              "shared memory is large enough");

// The block's mbarriers by their addresses: for each stage one that says that it is full and one that it is empty, the
// same for the stages of channel parameters, one for each set of consumers that orders the sets' main loops, one
// for resident filters, or for the accumulators that the blocks of a cluster send, one for each stage that says that its
// filters have been split, or the only one where all of them are resident, and two for each stage of streamed filters.
struct Barriers {
  unsigned first;
  DEVICE unsigned full(int stage) const { return first + stage * 8; }
  DEVICE unsigned empty(int stage) const { return first + (STAGES + stage) * 8; }
  DEVICE unsigned channels_full(int stage) const { return first + (2 * STAGES + stage) * 8; }
  DEVICE unsigned channels_empty(int stage) const { return first + (2 * STAGES + CHANNEL_STAGES + stage) * 8; }
  DEVICE unsigned order(int set) const { return first + (2 * STAGES + 2 * CHANNEL_STAGES + set) * 8; }
  DEVICE unsigned filters() const { return order(PINGPONG); }
  DEVICE unsigned sent() const { return order(PINGPONG); }
  DEVICE unsigned parts(int stage) const { return order(PINGPONG + 1 + stage); }
  DEVICE unsigned filters_full(int stage) const { return parts(PARTS_BARRIERS + stage); }
  DEVICE unsigned filters_empty(int stage) const { return parts(PARTS_BARRIERS + FILTER_STAGES + stage); }
  DEVICE unsigned raw_full(int stage) const { return filters_empty(FILTER_STAGES + stage); }
  DEVICE unsigned raw_empty(int stage) const { return filters_empty(FILTER_STAGES + RAW_STAGES + stage); }
};

// The state of a pipeline of N stages, `count` stages after its start: the stage, and the phase of its mbarriers.
template <int N> struct PipelineState {
  int stage;
  unsigned phase;
  DEVICE explicit PipelineState(unsigned count) : stage(count % (N > 0 ? N : 1)), phase(count / (N > 0 ? N : 1) & 1) {}
  DEVICE void next() {
    if (++stage == N) stage = 0, phase ^= 1;
  }
};

// The column of tiles that a tile is in: its group, and the first of its filters within the group.
struct Column {
  int group, filter;
};
DEVICE Column column_of(int tile) {
  const int column = tile % COLUMNS;
  return {column / FILTER_TILES, column % FILTER_TILES * TILE_F};
}
// The rectangle of an output's plane that a tile is: the plane's number, and where the rectangle begins in it.
constexpr int RECTANGLE_COLUMNS = RECTANGLE > 0 ? RECTANGLE : 8,
              RECTANGLE_LINES = LINES > 0 ? LINES : TILE_P / RECTANGLE_COLUMNS, SQUARES = RECTANGLE_COLUMNS / 8;
DEVICE unsigned rectangles_across(const Shape& s) {
  return ((unsigned)s.out_w + RECTANGLE_COLUMNS - 1) / RECTANGLE_COLUMNS;
}
DEVICE unsigned rectangles_down(const Shape& s) { return ((unsigned)s.out_h + RECTANGLE_LINES - 1) / RECTANGLE_LINES; }
struct Rectangle {
  int plane, h, w;
};
DEVICE Rectangle rectangle_of(const Shape& s, int tile) {
  // Numbers without a sign are divided in fewer instructions.
  const unsigned across = rectangles_across(s), all = across * rectangles_down(s);
  const unsigned number = (unsigned)tile / COLUMNS, plane = number / all, within = number - plane * all;
  const unsigned line = within / across, column = within - line * across;
  return {(int)plane, (int)line * RECTANGLE_LINES, (int)column * RECTANGLE_COLUMNS};
}
// How many pixels a tile has that is not the last of its image or of all (rows behind these have none), and how many tiles
// there are of so many pixels.
DEVICE int pixels_of_tile(const Shape& s) { return LINES == 0 ? COVERED_P : LINES * (int)s.out_w; }
DEVICE int tiles_along(const Shape& s, int pixels) {
  return (pixels - OVERLAP + pixels_of_tile(s) - 1) / pixels_of_tile(s);
}
DEVICE int tiles_of(const Shape& s) {
  if (RECTANGLE > 0) return s.pixels / (s.out_h * s.out_w) * rectangles_across(s) * rectangles_down(s) * COLUMNS;
  if (!PIXELS_INNERMOST) return tiles_along(s, s.pixels) * COLUMNS;
  // Where rows are pixels, threads have no register for what a multiplication takes, which compilers keep.
  if (PIXELS_ARE_ROWS) return s.pixels / (int)s.out_plane * tiles_along(s, s.out_plane) * COLUMNS;
  return s.pixels / s.out_plane * s.image_tiles * COLUMNS;
}

// The pixels of a tile, counted over all images.
struct Pixels {
  int first, end;
  // Of a rectangle's lines.
  int columns, lines;
};
DEVICE Pixels pixels_of(const Shape& s, int tile) {
  if (RECTANGLE > 0) {
    const Rectangle at = rectangle_of(s, tile);
    const int columns = (int)s.out_w - at.w, lines = (int)s.out_h - at.h;
    return {(at.plane * (int)s.out_h + at.h) * (int)s.out_w + at.w, (int)s.pixels,
            columns < RECTANGLE_COLUMNS ? columns : RECTANGLE_COLUMNS,
            lines < RECTANGLE_LINES ? lines : RECTANGLE_LINES};
  }
  const int number = tile / COLUMNS, of_image = PIXELS_INNERMOST ? tiles_along(s, s.out_plane) : 0;
  const int images = !PIXELS_INNERMOST ? 0 : PIXELS_ARE_ROWS ? number / of_image : number / s.image_tiles;
  const int image = images * s.out_plane, first = image + (number - images * of_image) * pixels_of_tile(s);
  const int end = PIXELS_INNERMOST ? image + s.out_plane : (int)s.pixels;
  const int behind = first + pixels_of_tile(s) + OVERLAP;
  return {first, behind < end ? behind : end, 0, 0};
}
// The pixel of one of a tile's columns; none of the tile's where the column is beyond the end of its line.
DEVICE int pixel_at(const Shape& s, const Pixels& pixels, int column) {
  if (LINES == 0) return pixels.first + column;
  if (RECTANGLE > 0) {
    const bool inside = column % LINE < pixels.columns && column / LINE < pixels.lines;
    return inside ? pixels.first + column / LINE * (int)s.out_w + column % LINE : pixels.end;
  }
  return column % LINE < s.out_w ? pixels.first + column / LINE * s.out_w + column % LINE : pixels.end;
}

// The first pixel that is loaded for a tile. Where its last one would be beyond all pixels, the tile MOVES_BACK: TMA takes longer for a pixel
// that is not there than for one that is.
DEVICE int first_loaded(const Shape& s, int tile) {
  const int first = tile / COLUMNS * TILE_P, last = (int)s.pixels - TILE_P;
  return MOVES_BACK && first > last && last > 0 ? last : first;
}
// The output pixel of one of a tile's rows: rows of a rectangle are squares of 8 x 8 pixels, line by line. It is beyond all
// pixels where the row has none, or one that the tile before this one has.
DEVICE int row_pixel(const Shape& s, const Rectangle& rectangle, int tile, int row) {
  if (RECTANGLE == 0) {
    const int pixel = first_loaded(s, tile) + row;
    return pixel < tile / COLUMNS * TILE_P ? (int)s.pixels : pixel;
  }
  const int square = row / 64;
  const int h = rectangle.h + square / SQUARES * 8 + row % 64 / 8, w = rectangle.w + square % SQUARES * 8 + row % 8;
  return h < s.out_h && w < s.out_w ? (rectangle.plane * (int)s.out_h + h) * (int)s.out_w + w : (int)s.pixels;
}

// The pixel of one of a tile's rows, as they are counted within it, and the row of a pixel. Where rows are INTERLEAVED, the eight of
// a fragment are pixels that lie as far apart: threads that read these from planes of an odd number of pixels, eight apart in four
// channels of 16 bits that lie two apart, or four apart in four neighbouring ones of f32, read different banks.
DEVICE int interleaved(int row) {
  return row / (INTERLEAVED * 8) * (INTERLEAVED * 8) + row % 8 * INTERLEAVED + row / 8 % INTERLEAVED;
}
DEVICE int row_of_pixel(int pixel) {
  return pixel / (INTERLEAVED * 8) * (INTERLEAVED * 8) + pixel % INTERLEAVED * 8 + pixel / INTERLEAVED % 8;
}

// Loads what the operators need of a tile's channels into the next stage of channel parameters. `count` threads call it. Filters
// beyond the last have zeros, with which their sums stay finite.
DEVICE void load_channels(const Args& args, Channel* channels, const Barriers& barriers,
                          PipelineState<CHANNEL_STAGES>& pipe, int tile, int thread, int count) {
  const Column column = column_of(tile);
  mbarrier_wait(barriers.channels_empty(pipe.stage), pipe.phase ^ 1);
#pragma unroll 1
  for (int f = thread; f < TILE_F; f += count)
    channels[pipe.stage * TILE_F + f] =
        column.filter + f < FILTERS ? channel_of(args, column.group * FILTERS + column.filter + f) : Channel();
  mbarrier_arrive(barriers.channels_full(pipe.stage));
  pipe.next();
}

// Brings the block's filters, where they are rearranged. All consumers call it.
DEVICE void rearrange_filters(const Args& args, char* memory, float* part);

// Words that an operand is prepared in: one, or four at a multiple of 16 bytes.
DEVICE void write_words(char* to, const unsigned (&words)[1]) { *(unsigned*)to = words[0]; }
DEVICE void write_words(char* to, const unsigned (&words)[4]) {
  *(uint4*)to = make_uint4(words[0], words[1], words[2], words[3]);
}

// Whether a launch prepares operands for later ones, and what it does then: it writes them as these load them. All threads call
// them.
DEVICE bool prepares(const Launch& launch);
DEVICE void prepare(const Launch& launch);

// Waits until the image may be read, where filters may be STREAMED.
DEVICE void wait_for_image(const Launch& launch);

// Issues the loads of the filters of every tile, where they are STREAMED. One thread calls it.
DEVICE void stream_filters(const Launch& launch, unsigned shared, const Barriers& barriers);

// Brings the operands of all tiles. All threads of the producer warpgroups call it, and each that reads memory waits for the
// grids before this one first (`wait_for_grids`, for an image `wait_for_image`), when it knows what to read.
DEVICE void produce(const Launch& launch, char* memory, const Barriers& barriers);

// The residuals of a thread's elements of a tile that it has read before the tile's main loop.
struct Early;

// Takes the warp's accumulators of a tile through the operators and writes the results. PLAIN says that nothing is scaled
// or blended.
template <bool PLAIN>
DEVICE void epilogue(Args args, float (&acc)[ATOMS][WIDTH / 2], float* part, const Channel* channels,
                     const Early& early, int tile);

// The main loop: accumulates the products of the block's tile number `count`.
DEVICE void mainloop(float (&acc)[ATOMS][WIDTH / 2], unsigned shared, const Barriers& barriers, unsigned count);

// Neighbouring filters that a lane of four writes of a pixel at once: 16 bytes of them.
constexpr int LANE_RUN = 16 / (int)sizeof(T);

// Where columns are filters, which two neighbours a lane has in the accumulators from this one of a row on. Where they are
// FILTERS_BY_LANE, columns 8 o + 2 j + e of as many eights as give four lanes a run of R each are the filters R j + 2 o + e.
DEVICE int pair_of_filters(int i) {
  constexpr int EIGHTS = LANE_RUN / 2;
  const int eight = i / 4, lane = threadIdx.x % 4;
  return FILTERS_BY_LANE ? eight / EIGHTS * (4 * LANE_RUN) + lane * LANE_RUN + eight % EIGHTS * 2
                         : eight * 8 + lane * 2;
}

// Takes a tile's accumulators through `affine` where columns are filters: a thread has the same two of every eight columns in
// all of its rows, so that their parameters are read once and need no registers afterwards.
DEVICE void affine_columns(const Args& args, float (&acc)[ATOMS][WIDTH / 2], const Channel* channels) {
  struct alignas(8) Pair {
    Channel at[2];
  };
#pragma unroll
  for (int i = 0; i < WIDTH / 2; i += 4) {
    // Registers hold the parameters of 16 columns at a time: no load moves up beyond this.
    if (i % 8 == 0) __syncwarp();
    const Pair pair = *(const Pair*)(channels + pair_of_filters(i));
#pragma unroll
    for (int atom = 0; atom < ATOMS; atom++)
#pragma unroll
      for (int e = 0; e < 4; e++) acc[atom][i + e] = affine(args, pair.at[e % 2], acc[atom][i + e]);
  }
}

// Elements of a tile that a thread finishes at a time where blocks share it, how many of these a row has, how many rows a block
// has at most, and how often a thread does so. How many vectors of residuals a thread's elements of a tile have.
constexpr int UNIT = Y_VECTOR < 4 ? 4 : Y_VECTOR, UNITS_ACROSS = WIDTH / UNIT,
              SHARE_ROWS = (COOPERATIVE * ROWS + SPLIT - 1) / SPLIT;
constexpr int UNITS_OF_THREAD = (SHARE_ROWS * UNITS_ACROSS + COOPERATIVE * 128 - 1) / (COOPERATIVE * 128);
constexpr int COLUMNS_OF_PARTS = PIXELS_ARE_ROWS ? (WIDTH + 31) / 32 * 32 : PARTS_ALONG * PART;
constexpr int VECTORS_OF_TILE = (SPLIT > 1 ? UNITS_OF_THREAD * UNIT : ATOMS * COLUMNS_OF_PARTS / 2) / Y_VECTOR;
// The residuals of a thread's elements of a tile, where it reads them before the tile's main loop (RESIDUALS_EARLY). Else threads only
// start to bring a tile's residuals into L2 there.
struct Early {
  Residuals<Y_VECTOR> of[RESIDUALS_EARLY ? VECTORS_OF_TILE : 1];
};

// Reads the residuals of a thread's elements of a tile, where it does so early.
DEVICE void read_residuals(const Args& args, Early& early, int tile);
DEVICE void read_residuals_split(const Args& args, Early& early);

// Starts to bring the residuals of a tile into L2, by `count` threads.
DEVICE void prefetch_residuals(const Args& args, int tile, int thread, int count);

// The epilogue of a tile that is split over a cluster of blocks, each of which arrives at the cluster's barrier before its
// main loop; it waits there for the others.
DEVICE void epilogue_split(const Args& args, const float (&acc)[ATOMS][WIDTH / 2], char* memory,
                           const Barriers& barriers, const Channel* channels, const Early& early);

// Starts to bring the block's share of the filters into L2, by the threads of its consumers. No thread sees what a hint reads, so hints need
// not wait for the grids before this one, even if these write the filters.
DEVICE void prefetch_filters(const Args& args) {
  constexpr int SECTOR = 32 / (int)sizeof(T), THREADS = PINGPONG * COOPERATIVE * 128;
  const T* const filters = (const T*)args.op[0].p[0];
#pragma unroll 1
  for (int at = (blockIdx.x * THREADS + threadIdx.x - PRODUCERS * 128) * SECTOR; at < PREFETCHED;
       at += gridDim.x * THREADS * SECTOR)
    prefetch_sector(filters + at);
}

extern "C" __global__ void __launch_bounds__((PRODUCERS + PINGPONG * COOPERATIVE) * 128, OCCUPANCY) CLUSTER
    fuseplan_kernel(const __grid_constant__ Launch launch) {
  DYNAMIC_SHARED(char, memory);
  if (prepares(launch)) return prepare(launch);
  const Args& args = launch.args;
  const unsigned start = shared_address(memory), shared = (start + 1023) / 1024 * 1024;
  char* aligned = memory + (shared - start);
  const Barriers barriers = {shared + BARRIERS_AT};
  if (threadIdx.x == 0) {
    if (!STREAMED) tma_prefetch_map(&launch.w);
    for (int i = 0; i < STAGES; i++)
      mbarrier_init(barriers.full(i), FULL_ARRIVALS), mbarrier_init(barriers.empty(i), COOPERATIVE * 4);
    for (int i = 0; i < CHANNEL_STAGES; i++)
      mbarrier_init(barriers.channels_full(i), CHANNEL_PRODUCERS),
          mbarrier_init(barriers.channels_empty(i), COOPERATIVE * 128);
    for (int i = 0; i < PINGPONG; i++) mbarrier_init(barriers.order(i), COOPERATIVE * 4);
    mbarrier_init(barriers.filters(), 1);
    // A warp arrives for each step that it has split.
    for (int i = 0; i < PARTS_BARRIERS; i++) mbarrier_init(barriers.parts(i), RESIDENT ? 3 * STEPS : 3);
    for (int i = 0; i < FILTER_STAGES; i++)
      mbarrier_init(barriers.filters_full(i), 1), mbarrier_init(barriers.filters_empty(i), COOPERATIVE * 4);
    for (int i = 0; i < RAW_STAGES; i++)
      mbarrier_init(barriers.raw_full(i), 1), mbarrier_init(barriers.raw_empty(i), FULL_ARRIVALS);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  launch_next_grid();
  if (SPLIT > 1) cluster_arrive();
  // The first warp is about to load pixels.
  if (threadIdx.x < PRODUCERS * 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(PRODUCER_REGISTERS));
    produce(launch, aligned, barriers);
    if (SPLIT > 1) cluster_wait();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(CONSUMER_REGISTERS));
    const Channel* channels = (const Channel*)(aligned + CHANNELS_AT);
    float* part = (float*)(aligned + ACC_AT) + (threadIdx.x / 32 - PRODUCERS * 4) * PART_FLOATS;
    float acc[ATOMS][WIDTH / 2];
    if (PREFETCHED > 0) prefetch_filters(args);
    wait_for_grids();
    if (REARRANGED) rearrange_filters(args, aligned, part);
    else if (RESIDENT && tile_number() < tiles_of(args.shape))
      mbarrier_wait(FILTERS_IN_PARTS ? barriers.parts(0) : barriers.filters(), 0);
    const bool plain = is_plain(args);
    // The same for all lanes of a warp, which the compiler cannot know of a thread's number: what is counted from here on, such as
    // stages and descriptors, is then in uniform registers.
    // Behind a single tap tiles are short, and there is a register for how many they are.
    const int tiles = TAPS == 1 ? tiles_of(args.shape) : 0;
    unsigned count = PINGPONG > 1 ? __shfl_sync(0xffffffff, (threadIdx.x / 128 - PRODUCERS) / COOPERATIVE, 0) : 0;
#pragma unroll 1
    for (int tile = tile_number() + count * tile_stride(); tile < (TAPS == 1 ? tiles : tiles_of(args.shape));
         tile += PINGPONG * tile_stride()) {
      Early early;
      if (RESIDUALS_EARLY && SPLIT > 1) read_residuals_split(args, early);
      else if (RESIDUALS_EARLY) read_residuals(args, early, tile);
      else prefetch_residuals(args, tile, threadIdx.x % (COOPERATIVE * 128), COOPERATIVE * 128);
      mainloop(acc, shared, barriers, count);
      const PipelineState<CHANNEL_STAGES> channel_pipe(count);
      mbarrier_wait(barriers.channels_full(channel_pipe.stage), channel_pipe.phase);
      if (SPLIT > 1) epilogue_split(args, acc, aligned, barriers, channels, early);
      else if (plain) epilogue<true>(args, acc, part, channels + channel_pipe.stage * TILE_F, early, tile);
      else epilogue<false>(args, acc, part, channels + channel_pipe.stage * TILE_F, early, tile);
      mbarrier_arrive(barriers.channels_empty(channel_pipe.stage));
      count += PINGPONG;
    }
  }
}
