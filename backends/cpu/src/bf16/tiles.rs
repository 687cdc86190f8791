//! The matrix unit: eight tile registers of 16 rows by 64 bytes. Four hold sums, of two by two tiles of 16 pixels by 16 output
//! channels, which is what loads of operands are hidden behind; the others hold two tiles of pixels by 32 input channels, and
//! two of 16 pairs of input channels by output channels.

use std::arch::asm;
use std::marker::PhantomData;

use super::product::{DEPTH, FILTERS, Product, SIDE};

/// What `ldtilecfg` reads.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Steps, of up to four loads and four multiplications, behind which a tile is stored. An Intel Xeon of family 6, model 167, takes a
/// thousand cycles for a store behind more than about 130 multiplications, and about a tenth of that for one behind fewer.
const WITHOUT_STORE: usize = 16;

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

impl Tiles {
    /// Multiplies whole tiles of pixels, one or two, and stores the sums.
    ///
    /// # Safety
    /// All that the product names is readable, for whole tiles, and the sums are writable.
    pub(super) unsafe fn multiply(&self, product: &Product<'_>) {
        // SAFETY: as the caller says.
        unsafe {
            match (product.pixels > SIDE, product.vectors) {
                (false, 1) => self.sum::<1, 1>(product),
                (false, _) => self.sum::<1, 2>(product),
                (true, 1) => self.sum::<2, 1>(product),
                (true, _) => self.sum::<2, 2>(product),
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

    /// Sums stay in the first four registers from one block of assembly to the next, and factors of parts in the others: the compiler
    /// uses no tile registers.
    ///
    /// # Safety
    /// As [`Tiles::multiply`].
    #[inline(always)]
    unsafe fn sum<const R: usize, const V: usize>(&self, p: &Product<'_>) {
        let tile = FILTERS * size_of::<u16>();
        let mut ahead = p.ahead;
        let pitch = V * SIDE * size_of::<f32>();
        let mut since = 0;
        let mut done = || {
            ahead.step();
            since += 1;
            if since == WITHOUT_STORE {
                since = 0;
                // SAFETY: the registers are configured; the caller says that the sums are writable, which are stored behind this.
                unsafe {
                    asm!("tilestored [{} + {}], tmm4", in(reg) p.sums, in(reg) pitch, options(nostack));
                }
            }
        };
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
                        // SAFETY: `self` proves that the registers are configured; the caller says that these tiles are
                        // readable.
                        unsafe {
                            if p.split.parts == 1 {
                                step::<R, V>(image, p.pitch, filters);
                                done();
                            } else {
                                // A product has one of its factors from the one before.
                                let mut last = [usize::MAX; 2];
                                for &(part, filter_part) in *products {
                                    if part != last[0] {
                                        load_pixels::<R>(image.wrapping_add(part * p.part), p.pitch);
                                    }
                                    if filter_part != last[1] {
                                        load_filters::<V>(filters.wrapping_add(filter_part * V * tile));
                                    }
                                    last = [part, filter_part];
                                    multiply::<R, V>();
                                    done();
                                }
                            }
                        }
                        image = image.wrapping_add(DEPTH * size_of::<u16>());
                        filters = filters.wrapping_add(p.split.parts * V * tile);
                    }
                }
            }
        }
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

/// Adds the products of R tiles of pixels, `pitch` bytes a row, by V tiles of filters, which are not read again soon, so that
/// they need not push pixels out of the first-level cache.
///
/// # Safety
/// The tile registers are configured, and the tiles readable.
#[inline(always)]
unsafe fn step<const R: usize, const V: usize>(a: *const u8, pitch: usize, b: *const u8) {
    let below = a.wrapping_add(SIDE * pitch);
    macro_rules! tiles {
        ($($text:literal)*) => {
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
    match (R, V) {
        (1, 1) => tiles!(
            "tileloadd tmm4, [{a} + {pitch}]"
            "tileloaddt1 tmm6, [{b} + {row}]"
            "tdpbf16ps tmm0, tmm4, tmm6"
        ),
        (1, _) => tiles!(
            "tileloadd tmm4, [{a} + {pitch}]"
            "tileloaddt1 tmm6, [{b} + {row}]"
            "tileloaddt1 tmm7, [{b} + {row} + 1024]"
            "tdpbf16ps tmm0, tmm4, tmm6"
            "tdpbf16ps tmm1, tmm4, tmm7"
        ),
        (_, 1) => tiles!(
            "tileloaddt1 tmm6, [{b} + {row}]"
            "tileloadd tmm4, [{a} + {pitch}]"
            "tileloadd tmm5, [{below} + {pitch}]"
            "tdpbf16ps tmm0, tmm4, tmm6"
            "tdpbf16ps tmm2, tmm5, tmm6"
        ),
        _ => tiles!(
            "tileloadd tmm4, [{a} + {pitch}]"
            "tileloaddt1 tmm6, [{b} + {row}]"
            "tileloadd tmm5, [{below} + {pitch}]"
            "tdpbf16ps tmm0, tmm4, tmm6"
            "tileloaddt1 tmm7, [{b} + {row} + 1024]"
            "tdpbf16ps tmm2, tmm5, tmm6"
            "tdpbf16ps tmm1, tmm4, tmm7"
            "tdpbf16ps tmm3, tmm5, tmm7"
        ),
    }
}

/// Loads R tiles of pixels, `pitch` bytes a row.
///
/// # Safety
/// As [`step`].
#[inline(always)]
unsafe fn load_pixels<const R: usize>(a: *const u8, pitch: usize) {
    // SAFETY: the caller says that the registers are configured and that the tiles are readable.
    unsafe {
        asm!("tileloadd tmm4, [{} + {}]", in(reg) a, in(reg) pitch, out("tmm4") _, options(nostack, readonly));
        if R > 1 {
            let below = a.wrapping_add(SIDE * pitch);
            asm!("tileloadd tmm5, [{} + {}]", in(reg) below, in(reg) pitch, out("tmm5") _, options(nostack, readonly));
        }
    }
}

/// Loads V tiles of filters.
///
/// # Safety
/// As [`step`].
#[inline(always)]
unsafe fn load_filters<const V: usize>(b: *const u8) {
    // SAFETY: the caller says that the registers are configured and that the tiles are readable.
    unsafe {
        asm!("tileloadd tmm6, [{} + {}]", in(reg) b, in(reg) 64usize, out("tmm6") _, options(nostack, readonly));
        if V > 1 {
            asm!("tileloadd tmm7, [{} + {} + 1024]", in(reg) b, in(reg) 64usize, out("tmm7") _, options(nostack, readonly));
        }
    }
}

/// Adds the products of R tiles of pixels and V tiles of filters that were loaded last.
///
/// # Safety
/// The tile registers are configured, and have such tiles.
#[inline(always)]
unsafe fn multiply<const R: usize, const V: usize>() {
    // SAFETY: the caller says that the registers are configured.
    unsafe {
        asm!("tdpbf16ps tmm0, tmm4, tmm6", out("tmm0") _, options(nostack, nomem));
        if R > 1 {
            asm!("tdpbf16ps tmm2, tmm5, tmm6", out("tmm2") _, options(nostack, nomem));
        }
        if V > 1 {
            asm!("tdpbf16ps tmm1, tmm4, tmm7", out("tmm1") _, options(nostack, nomem));
        }
        if R > 1 && V > 1 {
            asm!("tdpbf16ps tmm3, tmm5, tmm7", out("tmm3") _, options(nostack, nomem));
        }
    }
}
