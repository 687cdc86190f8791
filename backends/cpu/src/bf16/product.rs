//! What is multiplied at a time, and by what.
//!
//! Pixels have their channels in pairs, and filters the same pairs of each output channel beside one another. The matrix unit
//! ([`Tiles`]) takes 16 such pairs of a pixel, or a vector of filters ([`Dots`]) one pair, in an instruction; both add the products
//! of pairs to sums in f32, and take denormal numbers for 0.

use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

use super::dots::Dots;
use super::finish::FinishPixels;
use super::split::Split;
use super::tiles::Tiles;

/// Pixels of a tile, and output channels of a tile or vector.
pub(super) const SIDE: usize = 16;

/// Input channels of a tile.
pub(super) const DEPTH: usize = 32;

/// Elements of a tile of filters: pairs of input channels, by output channels, by the channels of a pair.
pub(super) const FILTERS: usize = SIDE * DEPTH;

/// The instructions that multiply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// AMX.
    Matrix,
    /// AVX512-BF16.
    Vector,
}

impl Unit {
    /// What this thread multiplies with, until it is dropped.
    ///
    /// # Safety
    /// The CPU has the instructions, of `Isa::Amx` or of `Isa::Avx512Bf16`, and the process may use them.
    pub(super) unsafe fn start(self) -> Multiplier {
        // SAFETY: as the caller says.
        unsafe {
            match self {
                Unit::Matrix => Multiplier::Tiles(Tiles::configure()),
                Unit::Vector => Multiplier::Dots(Dots::assume()),
            }
        }
    }

    /// The most pixels that are multiplied at a time: as many as the matrix unit has sums for, and where blocks of vectors follow
    /// one another as many as a call is worth while filters and finished lines stay in the first-level cache.
    pub(super) const fn pixels(self) -> usize {
        match self {
            Unit::Matrix => 2 * SIDE,
            Unit::Vector => 6 * SIDE,
        }
    }

    /// How many pixels are read, and have their sums written, where so many are multiplied.
    pub(super) fn whole(self, pixels: usize) -> usize {
        match self {
            Unit::Matrix => pixels.next_multiple_of(SIDE),
            Unit::Vector => pixels,
        }
    }
}

/// A unit that a thread may use.
pub(super) enum Multiplier {
    Tiles(Tiles),
    Dots(Dots),
}

impl Multiplier {
    /// Multiplies and stores the sums, or, where that can be done in registers, finishes the pixels; whether it did.
    ///
    /// # Safety
    /// All that the product names is readable, for as many pixels as [`Unit::whole`] says, and the sums are writable; what
    /// vectors may finish are the product's pixels, and lie inside of the output, which is of the tensors' type.
    pub(super) unsafe fn multiply(&self, product: &Product<'_>, finish: Option<&FinishPixels<'_>>) -> bool {
        // SAFETY: as the caller says; vectors multiply tensors of bf16 alone.
        unsafe {
            match (self, finish) {
                (Multiplier::Tiles(tiles), _) => tiles.multiply(product),
                (Multiplier::Dots(dots), None) => dots.multiply(product),
                (Multiplier::Dots(dots), Some(finish)) => {
                    dots.multiply_and_finish(product, finish);
                    return true;
                }
            }
        }
        false
    }
}

/// What is multiplied: up to [`Unit::pixels`] pixels, with all taps and input channels, by the filters of up to 32 output channels.
pub(super) struct Product<'a> {
    pub(super) pixels: usize,
    /// Vectors of output channels, 1 or 2.
    pub(super) vectors: usize,
    pub(super) split: &'a Split,
    /// The first pixel's first part, at no tap yet.
    pub(super) image: *const u16,
    /// Bytes from one pixel to the next, and from one of a pixel's parts to the next.
    pub(super) pitch: usize,
    pub(super) part: usize,
    /// How many slices the taps are in, the same in each, and bytes from one slice's pixels, and filters, to the next.
    pub(super) slices: usize,
    pub(super) slice: [usize; 2],
    /// Where each tap's pixels lie, in bytes from those above.
    pub(super) taps: &'a [usize],
    /// How many tiles deep a tap is, and pairs of channels, of which the last tile may lack some.
    pub(super) steps: usize,
    pub(super) pairs: usize,
    /// The tiles of filters of the first of these taps: taps, then steps, parts, and vectors of output channels.
    pub(super) filters: *const u16,
    /// Where the sums are stored, whole vectors of output channels for each pixel.
    pub(super) sums: *mut f32,
    /// What is multiplied later, and asked for meanwhile.
    pub(super) ahead: Ahead,
}

/// Filters, or lines of the input, that the second-level cache is to have soon: where they lie, their bytes, and how many cache lines are asked for at
/// each step. Loads of tiles wait for memory longer than steps take, and processors do not look as far ahead by themselves.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    pub(super) from: *const u16,
    pub(super) bytes: usize,
    pub(super) lines: usize,
}

impl Ahead {
    pub(super) const NOTHING: Ahead = Ahead { from: std::ptr::null(), bytes: 0, lines: 0 };

    /// Part `index` of what is asked for in `count` products of so many steps.
    pub(super) fn part(from: *const u16, bytes: usize, [index, count]: [usize; 2], steps: usize) -> Self {
        let lines = bytes.div_ceil((LINE * steps * count).max(1));
        let start = (index * steps * lines * LINE).min(bytes);
        Ahead { from: from.wrapping_byte_add(start), bytes: bytes - start, lines }
    }

    /// Asks for the lines of a step.
    #[inline(always)]
    pub(super) fn step(&mut self) {
        for _ in 0..self.lines.min(self.bytes.div_ceil(LINE)) {
            // SAFETY: prefetching never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(self.from.cast()) }
            self.from = self.from.wrapping_byte_add(LINE);
            self.bytes = self.bytes.saturating_sub(LINE);
        }
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;
