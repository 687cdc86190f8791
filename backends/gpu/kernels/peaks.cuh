// What a device can do at most: bytes that a copy moves, and products that nothing has to be fetched for.

struct alignas(16) Quad {
  unsigned x, y, z, w;
};

struct Args {
  const Quad* from;
  Quad* to;
  // Vectors to copy, or rounds of the loop. Eight bytes, as every argument.
  long long count;
};

// Two 16-bit numbers of both signs, f16 and bf16 alike between 2^-7 and 2: products of real data, since
// zeros would cost less energy and so give a higher clock.
DEVICE unsigned operand(unsigned seed) {
  seed = seed * 1664525u + 1013904223u;
  seed ^= seed >> 15;
  seed *= 2654435761u;
  return (seed & 0x80ff80ffu) | 0x3c003c00u;
}

// Has the compiler compute what is not wanted: it is never so, but the compiler cannot know.
DEVICE void want(const Args& args, float sum) {
  if (sum == -1.0f) args.to->x = 1;
}
