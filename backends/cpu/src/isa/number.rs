//! What kernels compute with: elements of 32 and 16 bits in memory, f32 in registers.

use half::{bf16, f16};

use super::{MAX_LANES, Simd};

/// An element that kernels read and write; they compute in f32.
pub(crate) trait Number: fuseplan_api::Element {
    /// The value 0.
    const ZERO: Self;

    /// A whole vector.
    ///
    /// # Safety
    /// `p` is readable for a whole vector.
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::V;

    /// A whole vector.
    ///
    /// # Safety
    /// `p` is writable for a whole vector.
    unsafe fn store<S: Simd>(s: S, p: *mut Self, v: S::V);

    /// Whether the vectors of [`Number::load_two`] are of even and of odd elements, rather than one behind the other.
    #[inline(always)]
    fn deals<S: Simd>() -> bool {
        false
    }

    /// Two whole vectors.
    ///
    /// # Safety
    /// `p` is readable for two whole vectors.
    #[inline(always)]
    unsafe fn load_two<S: Simd>(s: S, p: *const Self) -> [S::V; 2] {
        // SAFETY: as the caller says.
        unsafe { [Self::load(s, p), Self::load(s, p.add(S::LANES))] }
    }

    /// Two whole vectors, in the order of [`Number::load_two`].
    ///
    /// # Safety
    /// `p` is writable for two whole vectors.
    #[inline(always)]
    unsafe fn store_two<S: Simd>(s: S, p: *mut Self, [a, b]: [S::V; 2]) {
        // SAFETY: as the caller says.
        unsafe {
            Self::store(s, p, a);
            Self::store(s, p.add(S::LANES), b);
        }
    }

    /// The first `n <= LANES` elements, then zeros. What stands here is for elements of 16 bits.
    ///
    /// # Safety
    /// `p` is readable for `n` elements.
    #[inline(always)]
    unsafe fn load_part<S: Simd>(s: S, p: *const Self, n: usize) -> S::V {
        const { assert!(size_of::<Self>() == size_of::<u16>()) };
        // SAFETY: the caller says that `n` elements are readable at `p`; the block is as long as the widest vector.
        unsafe {
            let block = s.load_part_16(p.cast(), n);
            Self::load(s, block.as_ptr().cast())
        }
    }

    /// The elements in these lanes, zeros in the others. What stands here is for elements of 16 bits.
    ///
    /// # Safety
    /// The elements in these lanes of a vector at `p` are readable.
    #[inline(always)]
    unsafe fn load_lanes<S: Simd>(s: S, p: *const Self, inside: S::M) -> S::V {
        const { assert!(size_of::<Self>() == size_of::<u16>()) };
        // SAFETY: as the caller says; the block is as long as the widest vector.
        unsafe {
            let block = s.load_lanes_16(p.cast(), inside);
            Self::load(s, block.as_ptr().cast())
        }
    }

    /// The first `n <= LANES` elements. What stands here is for elements of 16 bits.
    ///
    /// # Safety
    /// `p` is writable for `n` elements.
    #[inline(always)]
    unsafe fn store_part<S: Simd>(s: S, p: *mut Self, v: S::V, n: usize) {
        const { assert!(size_of::<Self>() == size_of::<u16>()) };
        let mut block = [0; MAX_LANES];
        // SAFETY: the block is as long as the widest vector; the caller says that `n` elements are writable at `p`.
        unsafe {
            Self::store(s, block.as_mut_ptr().cast(), v);
            s.store_part_16(p.cast(), block, n);
        }
    }

    /// To f32, exactly.
    fn widen(self) -> f32;

    /// From f32, rounded to nearest even; NaN stays NaN.
    #[cfg(test)]
    fn narrow(x: f32) -> Self;
}

impl Number for f32 {
    const ZERO: Self = 0.0;
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::V {
        // SAFETY: the caller says that a whole vector is readable at `p`.
        unsafe { s.load(p) }
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut Self, v: S::V) {
        // SAFETY: the caller says that a whole vector is writable at `p`.
        unsafe { s.store(p, v) }
    }
    #[inline(always)]
    unsafe fn load_part<S: Simd>(s: S, p: *const Self, n: usize) -> S::V {
        // SAFETY: the caller says that `n` elements are readable at `p`.
        unsafe { s.load_part(p, n) }
    }
    #[inline(always)]
    unsafe fn load_lanes<S: Simd>(s: S, p: *const Self, inside: S::M) -> S::V {
        // SAFETY: the caller says that these lanes are readable at `p`.
        unsafe { s.load_lanes(p, inside) }
    }
    #[inline(always)]
    unsafe fn store_part<S: Simd>(s: S, p: *mut Self, v: S::V, n: usize) {
        // SAFETY: the caller says that `n` elements are writable at `p`.
        unsafe { s.store_part(p, v, n) }
    }
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
    #[cfg(test)]
    fn narrow(x: f32) -> Self {
        x
    }
}

impl Number for f16 {
    const ZERO: Self = f16::ZERO;
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::V {
        // SAFETY: the caller says that a whole vector is readable at `p`.
        unsafe { s.load_f16(p) }
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut Self, v: S::V) {
        // SAFETY: the caller says that a whole vector is writable at `p`.
        unsafe { s.store_f16(p, v) }
    }
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
    #[cfg(test)]
    fn narrow(x: f32) -> Self {
        f16::from_f32(x)
    }
}

impl Number for bf16 {
    const ZERO: Self = bf16::ZERO;
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::V {
        // SAFETY: the caller says that a whole vector is readable at `p`.
        unsafe { s.load_bf16(p) }
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut Self, v: S::V) {
        // SAFETY: the caller says that a whole vector is writable at `p`.
        unsafe { s.store_bf16(p, v) }
    }
    #[inline(always)]
    fn deals<S: Simd>() -> bool {
        S::DEALS_BF16
    }
    #[inline(always)]
    unsafe fn load_two<S: Simd>(s: S, p: *const Self) -> [S::V; 2] {
        // SAFETY: the caller says that two whole vectors are readable at `p`.
        unsafe { s.load_two_bf16(p) }
    }
    #[inline(always)]
    unsafe fn store_two<S: Simd>(s: S, p: *mut Self, v: [S::V; 2]) {
        // SAFETY: the caller says that two whole vectors are writable at `p`.
        unsafe { s.store_two_bf16(p, v) }
    }
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
    #[cfg(test)]
    fn narrow(x: f32) -> Self {
        bf16::from_f32(x)
    }
}
