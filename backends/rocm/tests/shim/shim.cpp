// Fibers, barriers and collectives of shim.h. One group runs at a time. A fiber computes one work-item after the
// other until one has to wait, so a kernel that never waits needs one fiber.
#include "shim.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "launch.h"

extern const unsigned long shim_argument_bytes;
extern const unsigned shim_wave;
void shim_kernel(const void* arguments);

ShimIndex shim_grid, shim_block, shim_group;

// What texts declare as `extern __shared__`. More than any target has, so that writing beyond what was asked for
// is seen.
constexpr unsigned SHARED = 192 << 10, GUARD = 4 << 10;
alignas(128) thread_local char shared[SHARED];

namespace {

constexpr size_t STACK = 256 << 10;
constexpr int UNUSED = 0xA5, UNKNOWN = 0xFF;  // unused: a pattern that must stay; unknown: NaN in every type

struct Fiber {
  char* stack = (char*)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ucontext_t start;
  jmp_buf resume;
  bool started = false;
  unsigned item = 0;
  Fiber() { mprotect(stack, 4096, PROT_NONE); }
  Fiber(const Fiber&) = delete;
  ~Fiber() { munmap(stack, STACK); }
};

// What a work-item that has begun does not go on without.
enum class Waits { Nothing, Group, Wave, Ended };
struct Item {
  Waits waits = Waits::Nothing;
  Fiber* fiber = nullptr;
  const ShimMatrix* matrix = nullptr;
  unsigned collectives = 0;
};

// The fragments of a wave as numbers, depth first. A lane may be one collective ahead of the others.
struct Wave {
  float a[2][16][64], b[2][16][64];
};

std::mutex lock;
std::vector<std::unique_ptr<Fiber>> fibers;
std::vector<Item> items;
std::vector<Wave> waves;
const void* arguments;
unsigned next_item;
Fiber* running;
jmp_buf scheduler;
std::string failure;

void fail(const std::string& what) {
  if (failure.empty())
    failure = what + " in group " + std::to_string(shim_group.x) + "," + std::to_string(shim_group.y) + "," +
              std::to_string(shim_group.z);
}

[[gnu::noinline]] void leave() {
  if (!_setjmp(running->resume)) _longjmp(scheduler, 1);
}

[[gnu::noinline]] void enter(Fiber& fiber) {
  running = &fiber;
  if (_setjmp(scheduler)) return;
  if (fiber.started) _longjmp(fiber.resume, 1);
  fiber.started = true;
  setcontext(&fiber.start);
}

// A fiber's life: work-items as long as there are any, then a rest until the next group.
void live() {
  for (;;) {
    while (next_item < items.size()) {
      running->item = next_item++;
      items[running->item].fiber = running;
      shim_kernel(arguments);
      items[running->item].waits = Waits::Ended;
    }
    leave();
  }
}

void wait(Waits for_what) {
  items[running->item].waits = for_what;
  leave();
}

// Lets every work-item of a range go on if all of them wait for that; whether they did.
bool release(unsigned first, unsigned end, Waits for_what) {
  for (unsigned i = first; i < end; i++)
    if (items[i].waits != for_what || (for_what == Waits::Wave && items[i].matrix != items[first].matrix)) return false;
  for (unsigned i = first; i < end; i++) {
    items[i].waits = Waits::Nothing;
    enter(*items[i].fiber);
  }
  return true;
}

void run_group() {
  const unsigned count = shim_block.x;
  items.assign(count, Item());
  next_item = 0;
  for (unsigned used = 0; next_item < count; used++) {
    if (used == fibers.size()) {
      fibers.push_back(std::make_unique<Fiber>());
      Fiber& fiber = *fibers.back();
      getcontext(&fiber.start);
      fiber.start.uc_stack.ss_sp = fiber.stack;
      fiber.start.uc_stack.ss_size = STACK;
      makecontext(&fiber.start, live, 0);
    }
    enter(*fibers[used]);
  }
  for (;;) {
    unsigned ended = 0;
    for (const Item& item : items) ended += item.waits == Waits::Ended;
    if (ended == count) return;
    bool moved = false;
    for (unsigned first = 0; first < count; first += shim_wave)
      if (first + shim_wave <= count)
        while (release(first, first + shim_wave, Waits::Wave)) moved = true;
    if (!moved && !release(0, count, Waits::Group)) {
      unsigned at_barrier = 0;
      for (const Item& item : items) at_barrier += item.waits == Waits::Group;
      fail("of " + std::to_string(count) + " work-items, " + std::to_string(at_barrier) + " wait at a barrier, " +
           std::to_string(ended) + " have ended, the others wait for their wave,");
      // Their fibers are never entered again.
      fibers.clear();
      return;
    }
  }
}

float number(const void* from, ShimElement element, int e) {
  if (element == ShimElement::F32) return ((const float*)from)[e];
  if (element == ShimElement::F16) return ((const _Float16*)from)[e];
  const unsigned bits = (unsigned)((const unsigned short*)from)[e] << 16;
  float v;
  memcpy(&v, &bits, 4);
  return v;
}

}  // namespace

ShimIndex shim_item() { return {running->item, 0, 0}; }

void shim_barrier() { wait(Waits::Group); }

void shim_product(const ShimMatrix& matrix, const void* a, const void* b, float* c) {
  Item& item = items[running->item];
  const int lane = running->item % shim_wave, parity = item.collectives++ % 2;
  const bool mfma = matrix.lanes == ShimLanes::Mfma, whole_rows = matrix.lanes == ShimLanes::Gfx11;
  const int size = mfma ? 32 : 16, half = lane / size, line = lane % size;
  // The depth that a half of the wave has: an end of it, fours by turns on gfx12, all of it on gfx11, where
  // the halves must agree.
  const int depth = whole_rows ? matrix.depth : 2 * matrix.depth;
  const auto place = [&](int e) {
    return whole_rows ? e : mfma ? half * matrix.depth + e : e / 4 * 8 + half * 4 + e % 4;
  };
  Wave& wave = waves[running->item / shim_wave];
  if (shim_wave != (mfma ? 64u : 32u)) fail(std::string(matrix.name) + ": a wave of the wrong size");
  for (int e = 0; e < matrix.depth; e++) {
    const float p = number(a, matrix.element, e), q = number(b, matrix.element, e);
    float &to_p = wave.a[parity][place(e)][line], &to_q = wave.b[parity][place(e)][line];
    if (whole_rows && half == 1 && (memcmp(&p, &to_p, 4) || memcmp(&q, &to_q, 4)))
      fail(std::string(matrix.name) + ": the halves of the wave differ");
    to_p = p, to_q = q;
  }
  item.matrix = &matrix;
  wait(Waits::Wave);
  const int sums = mfma ? 16 : 8;
  for (int r = 0; r < sums; r++) {
    const int row = mfma ? r / 4 * 8 + half * 4 + r % 4 : whole_rows ? 2 * r + half : r + half * 8;
    float sum = c[r];
    for (int k = 0; k < depth; k++) sum += wave.a[parity][k][row] * wave.b[parity][k][line];
    c[r] = sum;
  }
}

int shim_launch(const char* name, const unsigned grid[3], const unsigned block[3], unsigned bytes_shared,
                const void* from, unsigned long bytes, char* message, unsigned long room) {
  const std::lock_guard<std::mutex> guard(lock);
  failure.clear();
  shim_grid = {grid[0], grid[1], grid[2]}, shim_block = {block[0], block[1], block[2]}, shim_group = {};
  if (strcmp(name, "fuseplan_kernel")) fail(std::string("no kernel ") + name);
  if (bytes != shim_argument_bytes)
    fail("arguments of " + std::to_string(bytes) + " bytes for " + std::to_string(shim_argument_bytes));
  if (block[1] != 1 || block[2] != 1) fail("a block of more than one dimension");
  if (bytes_shared + GUARD > SHARED) fail("too much shared memory");
  arguments = from;
  waves.resize((block[0] + shim_wave - 1) / shim_wave);
  memset(shared + bytes_shared, UNUSED, GUARD);
  ShimIndex& at = shim_group;
  for (at.z = 0; at.z < grid[2]; at.z++)
    for (at.y = 0; at.y < grid[1]; at.y++)
      for (at.x = 0; at.x < grid[0] && failure.empty(); at.x++) {
        memset(shared, UNKNOWN, bytes_shared);
        run_group();
        for (unsigned i = 0; i < GUARD; i++)
          if ((unsigned char)shared[bytes_shared + i] != UNUSED) fail("a write beyond the shared memory");
      }
  snprintf(message, room, "%s", failure.c_str());
  return failure.empty() ? 0 : 1;
}
