//! Vectors that multiply bf16, AVX512-BF16: an instruction adds to each of 16 sums, one for each output channel, the products of
//! a pair of input channels. The pair of a pixel is read from memory into all lanes by the same instruction.

use std::arch::x86_64::*;
use std::hint::black_box;

use fuseplan_api::DataType;
use half::bf16;

use super::finish::{FinishPixels, Output, finish, registers};
use super::product::{Ahead, DEPTH, FILTERS, Product, SIDE};
use super::split::{Split, with_features};

/// Pixels whose sums are in registers, with two vectors of filters each: up to the first, enough of them to hide an instruction's
/// latency where two are begun in a cycle, or as many as there are registers for, which share what is read of filters.
const ROWS: usize = 8;
pub(super) const ALL_ROWS: usize = 14;

/// The fewest that are left behind [`ALL_ROWS`], and the fewest tiles of depth that make up for how many results are finished at once.
const LEFT: usize = 5;
const DEEP: usize = 8;

/// Where complete sums go.
trait End {
    /// Takes the sums of R pixels from `first` on.
    ///
    /// # Safety
    /// The CPU has the instructions of `Isa::Avx512Bf16`; there is room for these pixels.
    unsafe fn end<const R: usize, const V: usize>(&self, first: usize, sums: [[__m512; V]; R]);

    /// Takes so many pixels from `first` on whose sums are stored.
    ///
    /// # Safety
    /// As [`End::end`].
    unsafe fn end_stored(&self, first: usize, pixels: usize);

    /// Where sums are stored, if there are V vectors for a pixel.
    fn stored<const V: usize>(&self, product: &Product<'_>) -> Stored {
        Stored { sums: product.sums, pitch: V * SIDE }
    }
}

/// To memory, whole vectors for each pixel, which are so many floats apart.
#[derive(Clone, Copy)]
struct Stored {
    sums: *mut f32,
    pitch: usize,
}

impl End for Stored {
    #[inline(always)]
    unsafe fn end<const R: usize, const V: usize>(&self, first: usize, sums: [[__m512; V]; R]) {
        for (r, sums) in sums.iter().enumerate() {
            for (v, &sum) in sums.iter().enumerate() {
                // SAFETY: as the caller says.
                unsafe { _mm512_storeu_ps(self.sums.add((first + r) * self.pitch + v * SIDE), sum) }
            }
        }
    }

    #[inline(always)]
    unsafe fn end_stored(&self, _: usize, _: usize) {}

    fn stored<const V: usize>(&self, _: &Product<'_>) -> Stored {
        *self
    }
}

/// Through the front of the epilogue to an output of bf16.
struct Finished<'a>(&'a FinishPixels<'a>);

impl End for Finished<'_> {
    #[inline(always)]
    unsafe fn end<const R: usize, const V: usize>(&self, first: usize, sums: [[__m512; V]; R]) {
        // SAFETY: as the caller says.
        unsafe { registers::<Output<bf16>, R, V>(self.0, first, sums) }
    }

    unsafe fn end_stored(&self, first: usize, pixels: usize) {
        let &FinishPixels { sums, vectors, output, step, .. } = self.0;
        // SAFETY: as the caller says.
        unsafe {
            finish::<Output<bf16>>(&FinishPixels {
                sums: sums.wrapping_add(first * vectors * SIDE),
                output: output.wrapping_byte_add(first * step * size_of::<bf16>()),
                pixels,
                ..*self.0
            });
        }
    }
}

/// Pairs of channels in a tile's depth.
pub(crate) const STEP: usize = DEPTH / 2;

/// Bytes of a pair, and of a tile of filters.
const PAIR: usize = 2 * size_of::<u16>();
const TILE: usize = FILTERS * size_of::<u16>();

/// Proof that the CPU has the instructions.
pub(super) struct Dots(());

impl Dots {
    /// # Safety
    /// The CPU has the instructions of `Isa::Avx512Bf16`.
    pub(super) unsafe fn assume() -> Self {
        Dots(())
    }

    /// Multiplies what lies in registers, again and again; the operations that were done.
    pub(super) fn multiply_registers(&self, rounds: usize) -> f64 {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { chains(rounds) }
    }

    /// Multiplies the pixels, and stores the sums.
    ///
    /// # Safety
    /// All that the product names is readable, and the sums are writable.
    pub(super) unsafe fn multiply(&self, product: &Product<'_>) {
        // SAFETY: as the caller says.
        unsafe { self.blocks(product, &Stored { sums: product.sums, pitch: product.vectors * SIDE }) }
    }

    /// Multiplies the pixels, and applies the front of the epilogue to sums in registers.
    ///
    /// # Safety
    /// All that the product names is readable; the pixels lie inside of the output, which is of bf16 and which nobody else
    /// touches.
    pub(super) unsafe fn multiply_and_finish(&self, product: &Product<'_>, finish: &FinishPixels<'_>) {
        // SAFETY: as the caller says.
        unsafe { self.blocks(product, &Finished(finish)) }
    }

    /// # Safety
    /// All that the product names is readable, and there is room for its pixels where they end.
    unsafe fn blocks<E: End>(&self, product: &Product<'_>, end: &E) {
        let is_deep = product.slices * product.taps.len() * product.steps >= DEEP;
        let mut first = 0;
        while first < product.pixels {
            let rows = next_rows(product.pixels - first, is_deep);
            // SAFETY: `self` proves that the CPU has the instructions; as the caller says.
            unsafe {
                match product.vectors {
                    1 => of_vectors::<E, 1>(product, first, rows, end),
                    _ => of_vectors::<E, 2>(product, first, rows, end),
                }
            }
            first += rows;
        }
    }
}

/// How many of the rows that are left come next.
fn next_rows(left: usize, is_deep: bool) -> usize {
    match left.checked_sub(ALL_ROWS) {
        Some(rest) if is_deep && (rest == 0 || rest >= LEFT) => ALL_ROWS,
        // Of one size as nearly as can be.
        _ => left.div_ceil(left.div_ceil(ROWS)),
    }
}

/// Rows of pairs by vectors of pairs, where filters are rows and pixels are in the lanes.
pub(crate) struct RowsOfPairs {
    /// The first row, and bytes from one to the next.
    pub(crate) first: *const u16,
    pub(crate) pitch: usize,
    /// How many there are, as [`RowsOfPairs::next`] says.
    pub(crate) count: usize,
    pub(crate) pairs: usize,
    /// Vectors, 1 or 2, step by step: of each 16 pairs, one after the other.
    pub(crate) vectors: usize,
    pub(crate) lanes: *const u16,
    /// Where the sums of the first row are stored, and floats from one row's to the next.
    pub(crate) sums: *mut f32,
    pub(crate) sums_pitch: usize,
}

impl RowsOfPairs {
    /// The most that are multiplied at a time.
    pub(crate) const MOST: usize = ALL_ROWS;

    /// How many of those that are left are multiplied at a time.
    pub(crate) fn next(left: usize) -> usize {
        next_rows(left, true)
    }

    /// # Safety
    /// The CPU has the instructions of `Isa::Avx512Bf16`; rows and vectors are readable, and the sums are writable, whole vectors.
    pub(crate) unsafe fn multiply(&self) {
        let product = Product {
            pixels: self.count,
            vectors: self.vectors,
            split: Split::of(DataType::BFloat16),
            image: self.first,
            pitch: self.pitch,
            part: 0,
            slices: 1,
            slice: [0; 2],
            taps: &[0],
            steps: self.pairs.div_ceil(STEP),
            pairs: self.pairs,
            filters: self.lanes,
            sums: self.sums,
            ahead: Ahead::NOTHING,
        };
        let stored = Stored { sums: self.sums, pitch: self.sums_pitch };
        // SAFETY: as the caller says.
        unsafe {
            match self.vectors {
                1 => of_vectors::<_, 1>(&product, 0, self.count, &stored),
                _ => of_vectors::<_, 2>(&product, 0, self.count, &stored),
            }
        }
    }
}

with_features! {
    /// Chains of dependent products, enough of them to hide each other's latency; the operations that were done.
    ///
    /// # Safety
    /// The CPU has the instructions of `Isa::Avx512Bf16`.
    unsafe fn chains(rounds: usize) -> f64 {
        const CHAINS: usize = 20;
        // SAFETY: both types are 512 bits without invalid values.
        let factor: __m512bh = unsafe { std::mem::transmute(black_box(_mm512_set1_epi16(0x3f00))) };
        let mut sums = [_mm512_setzero_ps(); CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_dpbf16_ps(*sum, factor, factor);
            }
        }
        black_box(sums);
        (rounds * CHAINS * 2 * 2 * SIDE) as f64
    }
}

/// Of few pixels sums are stored first, so that there are fewer functions that end in registers, which are long.
///
/// # Safety
/// As [`sum`]; the sums are writable.
unsafe fn of_vectors<E: End, const V: usize>(product: &Product<'_>, first: usize, rows: usize, end: &E) {
    macro_rules! rows {
        ($($few:literal)*; $($many:literal)*) => {
            match rows {
                // SAFETY: as the caller says.
                $($few => unsafe {
                    sum::<Stored, $few, V>(product, first, &end.stored::<V>(product));
                    end.end_stored(first, $few);
                },)*
                // SAFETY: as the caller says.
                $($many => unsafe { sum::<E, $many, V>(product, first, end) },)*
                _ => unreachable!("blocks have up to {ROWS} pixels, or {ALL_ROWS}"),
            }
        };
    }
    rows!(1 2 3 4 5; 6 7 8 14);
}

with_features! {
    /// Multiplies R pixels from `first` on by V vectors of output channels.
    ///
    /// # Safety
    /// The CPU has the instructions of `Isa::Avx512Bf16`; all that the product names is readable, and there is room for these pixels
    /// where they end.
    unsafe fn sum<E: End, const R: usize, const V: usize>(p: &Product<'_>, first: usize, end: &E) {
        let mut ahead = p.ahead;
        let row = p.image.cast::<u8>().wrapping_add(first * p.pitch);
        let mut sums = [[_mm512_setzero_ps(); V]; R];
        for slice in 0..p.slices {
            let pixel = row.wrapping_add(slice * p.slice[0]);
            let mut filters = p.filters.cast::<u8>().wrapping_add(slice * p.slice[1]);
            for &tap in p.taps {
                let mut pixel = pixel.wrapping_add(tap);
                let mut pairs = p.pairs;
                while pairs > 0 {
                    for pair in 0..pairs.min(STEP) {
                        // SAFETY: the caller says that these pairs of the pixels and of the filters are readable; both types
                        // of vectors are 512 bits without invalid values.
                        unsafe {
                            let filters: [__m512bh; V] = std::array::from_fn(|v| {
                                let row = filters.add(v * TILE + pair * SIDE * PAIR);
                                std::mem::transmute(_mm512_loadu_si512(row.cast()))
                            });
                            for (r, sums) in sums.iter_mut().enumerate() {
                                let both = pixel.add(r * p.pitch + pair * PAIR).cast::<i32>().read_unaligned();
                                let both: __m512bh = std::mem::transmute(_mm512_set1_epi32(both));
                                for (sum, filters) in sums.iter_mut().zip(filters) {
                                    *sum = _mm512_dpbf16_ps(*sum, filters, both);
                                }
                            }
                        }
                    }
                    if first == 0 {
                        ahead.step();
                    }
                    pairs -= pairs.min(STEP);
                    pixel = pixel.wrapping_add(STEP * PAIR);
                    filters = filters.wrapping_add(V * TILE);
                }
            }
        }
        // SAFETY: as the caller says.
        unsafe { end.end(first, sums) }
    }
}
