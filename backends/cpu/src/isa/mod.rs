//! The vector instructions of the CPU: which set there is, and one vocabulary for all of them.
//!
//! A kernel is written once, generic over [`Simd`], and instantiated for each [`Isa`]. It is entered
//! through [`Isa::run`] (or [`Simd::enter`] inside of generic code), a function compiled with the set's
//! target features into which everything marked `#[inline(always)]` melts. A kernel's functions must
//! therefore all be `#[inline(always)]`.

use std::ops::Range;
use std::sync::OnceLock;

use fuseplan_api::Variable;
use half::{bf16, f16};

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod number;
mod portable;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
pub(crate) use number::Number;

/// A vector instruction set that kernels are instantiated for, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Isa {
    /// What the compiler makes of plain Rust.
    Portable,
    /// NEON of 64-bit ARM.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// AVX2 with FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AVX-512 with BF16, whose vectors are AVX-512's.
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
    /// AVX-512 with BF16, and AMX with tiles of bf16.
    #[cfg(target_arch = "x86_64")]
    Amx,
}

impl Isa {
    /// Every set that this build has kernels for, weakest first, whether or not this CPU has it.
    pub(crate) const ALL: &[Isa] = &[
        Isa::Portable,
        #[cfg(target_arch = "aarch64")]
        Isa::Neon,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Bf16,
        #[cfg(target_arch = "x86_64")]
        Isa::Amx,
    ];

    /// The environment variable that names a weaker set to be used instead of the best.
    pub(crate) const VARIABLE: Variable = Variable::ISA;

    /// The best set of this CPU, or the weaker one named by `FUSEPLAN_ISA`. Decided once.
    pub(crate) fn detect() -> Isa {
        static DETECTED: OnceLock<Isa> = OnceLock::new();
        *DETECTED.get_or_init(|| {
            let available = Isa::available();
            let wanted = Self::VARIABLE.text();
            let named = available.iter().find(|isa| Some(isa.name()) == wanted.as_deref());
            *named.unwrap_or(&available[available.len() - 1])
        })
    }

    /// The sets that this CPU has, weakest first; never empty.
    pub(crate) fn available() -> &'static [Isa] {
        static AVAILABLE: OnceLock<Vec<Isa>> = OnceLock::new();
        AVAILABLE.get_or_init(|| Isa::ALL.iter().copied().filter(|isa| isa.is_available()).collect())
    }

    /// Whether this CPU has the set.
    fn is_available(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Isa::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16 => Isa::Avx512.is_available() && is_x86_feature_detected!("avx512bf16"),
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => !Isa::is_ruled_out(Isa::Amx) && Isa::Avx512Bf16.is_available() && amx::is_available(),
        }
    }

    /// Whether `FUSEPLAN_ISA` names another set, so that nothing is to be asked of the system for this one.
    #[cfg(target_arch = "x86_64")]
    fn is_ruled_out(isa: Isa) -> bool {
        let wanted = Self::VARIABLE.text();
        Isa::ALL.iter().any(|other| *other != isa && Some(other.name()) == wanted.as_deref())
    }

    /// `amx`, `avx512-bf16`, `avx512`, `avx2`, `neon`, `portable`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => "neon",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16 => "avx512-bf16",
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => "amx",
        }
    }

    /// f32 lanes of a vector.
    pub(crate) fn lanes(self) -> usize {
        match self {
            Isa::Portable => portable::Portable::LANES,
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => neon::Neon::LANES,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::Avx2::LANES,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Avx512Bf16 | Isa::Amx => Avx512::LANES,
        }
    }

    /// Whether an instruction loads some lanes of elements of so many bytes, and leaves the others: [`Simd::MASKED`].
    pub(crate) fn loads_lanes(self, bytes: usize) -> bool {
        let least = match self {
            Isa::Portable => portable::Portable::MASKED,
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => neon::Neon::MASKED,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::Avx2::MASKED,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Avx512Bf16 | Isa::Amx => Avx512::MASKED,
        };
        least.is_some_and(|least| least <= bytes)
    }

    /// The set for lines of so many elements: a weaker one whose vectors are no longer than needed, where there is one.
    pub(crate) fn of_width(self, width: usize) -> Isa {
        #[cfg(target_arch = "x86_64")]
        if self > Isa::Avx2 && width <= Isa::Avx2.lanes() {
            return Isa::Avx2;
        }
        let _ = width;
        self
    }

    /// Runs a kernel with this set.
    ///
    /// # Panics
    /// This CPU does not have the set. Sets from [`Isa::detect`] and [`Isa::available`] it has.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        debug_assert!(Isa::available().contains(&self));
        match self {
            // SAFETY: plain Rust runs anywhere.
            Isa::Portable => unsafe { portable::Portable::enter(kernel) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: every 64-bit ARM CPU that Rust supports has NEON.
            Isa::Neon => unsafe { neon::Neon::enter(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the only sources of this value have looked for the features.
            Isa::Avx2 => unsafe { avx2::Avx2::enter(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the only sources of this value have looked for the features.
            Isa::Avx512 | Isa::Avx512Bf16 | Isa::Amx => unsafe { Avx512::enter(kernel) },
        }
    }
}

/// A function that is generic over the instruction set.
pub(crate) trait Kernel {
    /// What it returns.
    type Output;

    /// The function. Must be `#[inline(always)]`, as must be all that it calls in its inner loops.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// The widest vector of any set.
pub(crate) const MAX_LANES: usize = 16;

/// A vector instruction set. A value of it proves that the CPU has the set.
///
/// Arithmetic is f32 whatever the type in memory. Comparisons with NaN are false. Rounding is to nearest
/// even. `_part` functions touch only the first `n <= LANES` elements in memory; lanes beyond are 0.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// A vector of [`Simd::LANES`] f32.
    type V: Copy;
    /// A truth value for each lane.
    type M: Copy;

    /// Lanes of a vector: 8 or 16, or 4.
    const LANES: usize;

    /// Whether two vectors of bf16 have even elements in the first and odd elements in the second, rather than one behind
    /// the other: no lane has to move then.
    const DEALS_BF16: bool = false;
    /// Whether kernels that are written out for one filter, or for two rows at once, which makes them long, are made for this set.
    const WRITES_OUT: bool = true;

    /// Bytes of the smallest elements of which an instruction loads some lanes and leaves the others: none if there is no such one.
    const MASKED: Option<usize> = None;

    /// Rows, BLIS's mr, of the largest register tile with one and with two vectors a row.
    const ROWS: [usize; 2];
    /// How many products a step of a tile's loop adds: with more of them there are fewer instructions beside the multiply-adds.
    const PRODUCTS: usize = 1;

    /// Runs a kernel in a function that is compiled for this set.
    ///
    /// # Safety
    /// The CPU has the set.
    unsafe fn enter<K: Kernel>(kernel: K) -> K::Output;

    /// The same value in all lanes.
    fn splat(self, x: f32) -> Self::V;
    /// `a + b`
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b`
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once where the set has such an instruction (all but the portable one).
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a > b ? a : b`: with NaN in either, `b`.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a < b ? a : b`: with NaN in either, `b`.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// The square root.
    fn sqrt(self, a: Self::V) -> Self::V;
    /// The absolute value.
    fn abs(self, a: Self::V) -> Self::V;
    /// The nearest integer, ties to even, for `|a| < 2^22`.
    fn round(self, a: Self::V) -> Self::V;
    /// `2^n` for an integer `n` in −126..=127; of any other number some value, which nobody may use.
    fn pow2(self, n: Self::V) -> Self::V;
    /// `x · 2^n` for such an `n`.
    #[inline(always)]
    fn times_pow2(self, x: Self::V, n: Self::V) -> Self::V {
        self.mul(x, self.pow2(n))
    }
    /// `x · 2^n`, rounded once, for an integer `n` in −252..=254 and an `x` whose product with the root of that is normal.
    #[inline(always)]
    fn scale(self, x: Self::V, n: Self::V) -> Self::V {
        // In two steps, because the exponent may leave the range of f32 where the result does not.
        let half = self.round(self.mul(n, self.splat(0.5)));
        self.mul(self.mul(x, self.pow2(half)), self.pow2(self.sub(n, half)))
    }
    /// Positive normal numbers as `m · 2^e` with m in √½..√2: (m, e).
    fn frexp(self, a: Self::V) -> (Self::V, Self::V);
    /// `a > b`
    fn gt(self, a: Self::V, b: Self::V) -> Self::M;
    /// Whether a lane is NaN.
    fn is_nan(self, a: Self::V) -> Self::M;
    /// `m ? a : b`
    fn select(self, m: Self::M, a: Self::V, b: Self::V) -> Self::V;
    /// Lane `i` is lane `index[i]` of `v`; indices are below [`Simd::LANES`].
    fn permute(self, v: Self::V, index: &[u32; MAX_LANES]) -> Self::V;
    /// The elements with even and those with odd numbers of two vectors, one behind the other.
    #[inline(always)]
    fn even_odd(self, a: Self::V, b: Self::V) -> [Self::V; 2] {
        let low = self.lanes(0..Self::LANES / 2);
        [0, 1].map(|odd| {
            let index = std::array::from_fn(|lane| ((2 * lane + odd) % Self::LANES) as u32);
            self.select(low, self.permute(a, &index), self.permute(b, &index))
        })
    }
    /// The lanes of two vectors, one behind the other, from lane `N` of the first on.
    #[inline(always)]
    fn slide<const N: usize>(self, a: Self::V, b: Self::V) -> Self::V {
        let index = std::array::from_fn(|lane| ((lane + N) % Self::LANES) as u32);
        let first = self.lanes(0..Self::LANES - N);
        self.select(first, self.permute(a, &index), self.permute(b, &index))
    }
    /// The lanes whose numbers are in a range.
    #[inline(always)]
    fn lanes(self, inside: Range<usize>) -> Self::M {
        let ones: [f32; MAX_LANES] = std::array::from_fn(|lane| f32::from(inside.contains(&lane)));
        // SAFETY: the array is as long as the widest vector.
        unsafe { self.gt(self.load(ones.as_ptr()), self.splat(0.5)) }
    }
    /// Transposes the square of the first [`Simd::LANES`] vectors.
    fn transpose(self, rows: &mut [Self::V; MAX_LANES]);

    /// Asks for the cache line of `p`, which need not be valid, to be read soon.
    fn prefetch(self, p: *const f32) {
        let _ = p;
    }
    /// Asks for the cache line of `p`, which need not be valid, to be read later, from the second-level cache.
    fn prefetch_far(self, p: *const f32) {
        let _ = p;
    }
    /// Asks for the cache line of `p`, which need not be valid, to be written soon.
    fn prefetch_write(self, p: *mut f32) {
        let _ = p;
    }

    /// # Safety
    /// `p` is readable for a whole vector.
    unsafe fn load(self, p: *const f32) -> Self::V;
    /// The value at `p` in all lanes.
    ///
    /// # Safety
    /// `p` is readable for one element.
    unsafe fn load_splat(self, p: *const f32) -> Self::V;
    /// # Safety
    /// `p` is readable for `n` elements.
    unsafe fn load_part(self, p: *const f32, n: usize) -> Self::V;
    /// The elements in these lanes, zeros in the others, which are not touched in memory. One by one where there is no instruction
    /// for it ([`Simd::MASKED`]).
    ///
    /// # Safety
    /// The elements in these lanes of a vector at `p` are readable.
    #[inline(always)]
    unsafe fn load_lanes(self, p: *const f32, inside: Self::M) -> Self::V {
        let mut block = [0.0; MAX_LANES];
        for lane in self.numbers(inside) {
            // SAFETY: the caller says that this lane is readable.
            block[lane] = unsafe { p.wrapping_add(lane).read() };
        }
        // SAFETY: the block is as long as the widest vector.
        unsafe { self.load(block.as_ptr()) }
    }
    /// As [`Simd::load_lanes`], of elements of 16 bits.
    ///
    /// # Safety
    /// As [`Simd::load_lanes`].
    #[inline(always)]
    unsafe fn load_lanes_16(self, p: *const u16, inside: Self::M) -> [u16; MAX_LANES] {
        let mut block = [0; MAX_LANES];
        for lane in self.numbers(inside) {
            // SAFETY: the caller says that this lane is readable.
            block[lane] = unsafe { p.wrapping_add(lane).read() };
        }
        block
    }
    /// The numbers of these lanes.
    #[inline(always)]
    fn numbers(self, inside: Self::M) -> impl Iterator<Item = usize> {
        let mut ones = [0.0f32; MAX_LANES];
        // SAFETY: the array is as long as the widest vector.
        unsafe { self.store(ones.as_mut_ptr(), self.select(inside, self.splat(1.0), self.splat(0.0))) };
        (0..Self::LANES).filter(move |&lane| ones[lane] > 0.5)
    }
    /// # Safety
    /// `p` is writable for a whole vector.
    unsafe fn store(self, p: *mut f32, v: Self::V);
    /// # Safety
    /// `p` is writable for `n` elements.
    unsafe fn store_part(self, p: *mut f32, v: Self::V, n: usize);
    /// The first `n` elements of 16 bits at `p`, then zeros.
    ///
    /// # Safety
    /// `p` is readable for `n` elements.
    #[inline(always)]
    unsafe fn load_part_16(self, p: *const u16, n: usize) -> [u16; MAX_LANES] {
        let mut block = [0; MAX_LANES];
        // SAFETY: `n` is at most the block's length, and the caller answers for `p`.
        unsafe { std::ptr::copy_nonoverlapping(p, block.as_mut_ptr(), n) };
        block
    }
    /// Stores the first `n` of these elements of 16 bits.
    ///
    /// # Safety
    /// `p` is writable for `n` elements.
    #[inline(always)]
    unsafe fn store_part_16(self, p: *mut u16, block: [u16; MAX_LANES], n: usize) {
        // SAFETY: `n` is at most the block's length, and the caller answers for `p`.
        unsafe { std::ptr::copy_nonoverlapping(block.as_ptr(), p, n) };
    }
    /// # Safety
    /// `p` is readable for a whole vector.
    unsafe fn load_f16(self, p: *const f16) -> Self::V;
    /// # Safety
    /// `p` is writable for a whole vector.
    unsafe fn store_f16(self, p: *mut f16, v: Self::V);
    /// # Safety
    /// `p` is readable for a whole vector.
    unsafe fn load_bf16(self, p: *const bf16) -> Self::V;
    /// Rounds to nearest even; NaN stays NaN.
    ///
    /// # Safety
    /// `p` is writable for a whole vector.
    unsafe fn store_bf16(self, p: *mut bf16, v: Self::V);
    /// Two vectors of elements, in the order that [`Simd::DEALS_BF16`] tells.
    ///
    /// # Safety
    /// `p` is readable for two whole vectors.
    #[inline(always)]
    unsafe fn load_two_bf16(self, p: *const bf16) -> [Self::V; 2] {
        // SAFETY: as the caller says.
        unsafe { [self.load_bf16(p), self.load_bf16(p.add(Self::LANES))] }
    }
    /// As [`Simd::store_bf16`], two vectors in the order of [`Simd::load_two_bf16`].
    ///
    /// # Safety
    /// `p` is writable for two whole vectors.
    #[inline(always)]
    unsafe fn store_two_bf16(self, p: *mut bf16, [a, b]: [Self::V; 2]) {
        // SAFETY: as the caller says.
        unsafe {
            self.store_bf16(p, a);
            self.store_bf16(p.add(Self::LANES), b);
        }
    }
}
