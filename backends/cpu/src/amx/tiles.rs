//! The matrix unit: eight tile registers of 16 rows by 64 bytes. Four hold sums, of two by two tiles of 16 pixels by 16 output
//! channels, which is what loads of operands are hidden behind; the others hold two tiles of pixels by 32 input channels, and
//! two of 16 pairs of input channels by output channels.

use std::arch::asm;
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
use std::marker::PhantomData;

use super::split::Split;

/// Pixels, or output channels, of a tile.
pub(super) const SIDE: usize = 16;

/// Input channels of a tile.
pub(super) const DEPTH: usize = 32;

/// Elements of a tile of filters: pairs of input channels, by output channels, by the channels of a pair.
pub(super) const FILTERS: usize = SIDE * DEPTH;

/// What `ldtilecfg` reads.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// All eight tiles of the largest size.
static CONFIG: Config = {
    let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
    let mut tile = 0;
    while tile < 8 {
        (row_bytes[tile], rows[tile]) = (64, SIDE as u8);
        tile += 1;
    }
    Config { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
};

/// Proof that this thread's tile registers are configured. Dropped, it gives them up, so that switches between threads and
/// signals do not have to save them.
pub(super) struct Tiles(PhantomData<*const ()>);

impl Tiles {
    /// Configures the tile registers of this thread.
    ///
    /// # Safety
    /// The CPU has the instructions of `Isa::Amx`, and the process may use them.
    pub(super) unsafe fn configure() -> Self {
        // SAFETY: the caller says that the instruction may be used; the configuration is one of palette 1.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIG, options(nostack, readonly)) };
        Tiles(PhantomData)
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: who made this value could use the tile registers.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// What is multiplied: up to 32 pixels, with all taps and input channels, by the filters of up to 32 output channels.
pub(super) struct Product<'a> {
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
    /// How many tiles deep a tap is.
    pub(super) steps: usize,
    /// The tiles of filters of the first of these taps: taps, then steps, parts, and vectors of output channels.
    pub(super) filters: *const u16,
    /// Where the sums are stored, whole vectors of output channels for each pixel.
    pub(super) sums: *mut f32,
    /// What is multiplied later, and asked for meanwhile.
    pub(super) ahead: Ahead,
}

/// Filters that the second-level cache is to have soon: where they lie, their bytes, and how many cache lines are asked for at
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
    fn step(&mut self) {
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

impl Tiles {
    /// Multiplies `rows` tiles of pixels by `vectors` tiles of output channels, each 1 or 2, and stores the sums.
    ///
    /// # Safety
    /// All that the product names is readable, for whole tiles, and the sums are writable.
    pub(super) unsafe fn multiply(&self, rows: usize, vectors: usize, product: &Product<'_>) {
        // SAFETY: as the caller says.
        unsafe {
            match (rows, vectors) {
                (1, 1) => self.sum::<1, 1>(product),
                (1, _) => self.sum::<1, 2>(product),
                (_, 1) => self.sum::<2, 1>(product),
                _ => self.sum::<2, 2>(product),
            }
        }
    }

    /// Multiplies two by two tiles that lie in registers, again and again.
    pub(super) fn multiply_registers(&self, rounds: usize) {
        // SAFETY: `self` proves that the registers are configured; whatever they have are numbers.
        unsafe {
            asm!(
                "2:",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "dec {rounds}",
                "jnz 2b",
                rounds = inout(reg) rounds => _, options(nostack, nomem)
            );
        }
    }

    /// # Safety
    /// As [`Tiles::multiply`].
    #[inline(always)]
    unsafe fn sum<const R: usize, const V: usize>(&self, p: &Product<'_>) {
        let tile = FILTERS * size_of::<u16>();
        let mut ahead = p.ahead;
        // SAFETY: `self` proves that the registers are configured.
        unsafe {
            asm!(
                "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, options(nostack, nomem)
            );
        }
        for products in p.split.passes {
            for slice in 0..p.slices {
                let first = p.image.cast::<u8>().wrapping_add(slice * p.slice[0]);
                let mut filters = p.filters.cast::<u8>().wrapping_add(slice * p.slice[1]);
                for &tap in p.taps {
                    let mut image = first.wrapping_add(tap);
                    for _ in 0..p.steps {
                        for &(part, filter_part) in *products {
                            let a = image.wrapping_add(part * p.part);
                            let b = filters.wrapping_add(filter_part * V * tile);
                            // SAFETY: `self` proves that the registers are configured; the caller says that these tiles
                            // are readable.
                            unsafe {
                                if p.split.parts == 1 {
                                    step::<R, V, true>(a, p.pitch, b);
                                } else {
                                    step::<R, V, false>(a, p.pitch, b);
                                }
                            }
                            ahead.step();
                        }
                        image = image.wrapping_add(DEPTH * size_of::<u16>());
                        filters = filters.wrapping_add(p.split.parts * V * tile);
                    }
                }
            }
        }
        let pitch = V * SIDE * size_of::<f32>();
        macro_rules! store {
            ($tile:literal, $row:expr, $vector:expr) => {
                if $row < R && $vector < V {
                    let at = p.sums.wrapping_add(($row * SIDE * V + $vector) * SIDE);
                    // SAFETY: the registers are configured; the caller says that the sums are writable.
                    unsafe {
                        asm!(
                            concat!("tilestored [{at} + {pitch}], ", $tile),
                            at = in(reg) at, pitch = in(reg) pitch, options(nostack)
                        );
                    }
                }
            };
        }
        store!("tmm0", 0, 0);
        store!("tmm1", 0, 1);
        store!("tmm2", 1, 0);
        store!("tmm3", 1, 1);
    }
}

/// Adds the products of R tiles of pixels, `pitch` bytes a row, by V tiles of filters. ONCE says that these are not read again
/// soon, so that they need not push pixels out of the first-level cache.
///
/// # Safety
/// The tile registers are configured, and the tiles readable.
#[inline(always)]
unsafe fn step<const R: usize, const V: usize, const ONCE: bool>(a: *const u8, pitch: usize, b: *const u8) {
    let below = a.wrapping_add(SIDE * pitch);
    macro_rules! tiles {
        ($($text:expr;)*) => {
            // SAFETY: the caller says that the registers are configured and that the tiles are readable.
            unsafe {
                asm!(
                    $($text,)*
                    // An operand has to be named, also where there is one tile of pixels.
                    "/* {below} */",
                    a = in(reg) a, below = in(reg) below, pitch = in(reg) pitch,
                    b = in(reg) b, row = in(reg) 64usize,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack, readonly)
                )
            }
        };
    }
    macro_rules! with_filters_by {
        ($load:literal) => {
            match (R, V) {
                (1, 1) => tiles!(
                    "tileloadd tmm4, [{a} + {pitch}]";
                    concat!($load, " tmm6, [{b} + {row}]");
                    "tdpbf16ps tmm0, tmm4, tmm6";
                ),
                (1, _) => tiles!(
                    "tileloadd tmm4, [{a} + {pitch}]";
                    concat!($load, " tmm6, [{b} + {row}]");
                    concat!($load, " tmm7, [{b} + {row} + 1024]");
                    "tdpbf16ps tmm0, tmm4, tmm6";
                    "tdpbf16ps tmm1, tmm4, tmm7";
                ),
                (_, 1) => tiles!(
                    concat!($load, " tmm6, [{b} + {row}]");
                    "tileloadd tmm4, [{a} + {pitch}]";
                    "tileloadd tmm5, [{below} + {pitch}]";
                    "tdpbf16ps tmm0, tmm4, tmm6";
                    "tdpbf16ps tmm2, tmm5, tmm6";
                ),
                _ => tiles!(
                    "tileloadd tmm4, [{a} + {pitch}]";
                    concat!($load, " tmm6, [{b} + {row}]");
                    "tileloadd tmm5, [{below} + {pitch}]";
                    "tdpbf16ps tmm0, tmm4, tmm6";
                    concat!($load, " tmm7, [{b} + {row} + 1024]");
                    "tdpbf16ps tmm2, tmm5, tmm6";
                    "tdpbf16ps tmm1, tmm4, tmm7";
                    "tdpbf16ps tmm3, tmm5, tmm7";
                ),
            }
        };
    }
    if ONCE {
        with_filters_by!("tileloaddt1");
    } else {
        with_filters_by!("tileloadd");
    }
}
