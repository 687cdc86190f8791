//! Vectors from and to memory: whole or in part, of elements side by side or apart.

use crate::isa::{MAX_LANES, Number, Simd};

/// Runs a body for each whole vector of `n` elements, then for the rest; `count` is how many elements it has.
macro_rules! vectors {
    ($S:ident, $n:expr, |$at:ident, $count:ident| $body:block) => {
        let n = $n;
        let whole = n - n % $S::LANES;
        for $at in (0..whole).step_by($S::LANES) {
            let $count = $S::LANES;
            $body
        }
        if whole < n {
            let ($at, $count) = (whole, n - whole);
            $body
        }
    };
}
pub(crate) use vectors;

/// The `n` elements at `p`, then zeros.
///
/// # Safety
/// `p` is readable for `n` elements; `n` is at most [`Simd::LANES`].
#[inline(always)]
pub(crate) unsafe fn load<S: Simd, T: Number>(s: S, p: *const T, n: usize) -> S::V {
    // SAFETY: the caller says that `n` elements are readable, which are a whole vector in the first case.
    unsafe { if n == S::LANES { T::load(s, p) } else { T::load_part(s, p, n) } }
}

/// Stores the first `n` lanes at `p`.
///
/// # Safety
/// `p` is writable for `n` elements; `n` is at most [`Simd::LANES`].
#[inline(always)]
pub(crate) unsafe fn store<S: Simd, T: Number>(s: S, p: *mut T, v: S::V, n: usize) {
    // SAFETY: the caller says that `n` elements are writable, which are a whole vector in the first case.
    unsafe { if n == S::LANES { T::store(s, p, v) } else { T::store_part(s, p, v, n) } }
}

/// The `n` elements from `p` on that are `stride` apart, then zeros.
///
/// # Safety
/// They are readable; `n` is at most [`Simd::LANES`].
#[inline(always)]
pub(crate) unsafe fn load_strided<S: Simd, T: Number>(s: S, p: *const T, stride: usize, n: usize) -> S::V {
    if stride == 1 {
        // SAFETY: the caller says that the elements, which are side by side here, are readable.
        return unsafe { load(s, p, n) };
    }
    let mut block = [0.0f32; MAX_LANES];
    for (i, x) in block[..n].iter_mut().enumerate() {
        // SAFETY: the caller says that the element is readable.
        *x = unsafe { *p.add(i * stride) }.widen();
    }
    // SAFETY: the block is as long as the widest vector.
    unsafe { s.load(block.as_ptr()) }
}

/// The `n` elements from `p` on that are two apart, then what is beside them.
///
/// # Safety
/// They and those between them are readable; `n` is at most [`Simd::LANES`], and not 0.
#[inline(always)]
pub(crate) unsafe fn load_even<S: Simd, T: Number>(s: S, p: *const T, n: usize) -> S::V {
    let (span, half) = (2 * n - 1, S::LANES / 2);
    let (first, second) = (span.min(S::LANES), span.saturating_sub(S::LANES));
    let even = std::array::from_fn(|lane| (2 * lane % S::LANES) as u32);
    let low: [f32; MAX_LANES] = std::array::from_fn(|lane| if lane < half { 1.0 } else { 0.0 });
    // SAFETY: the caller says that the `span` elements are readable; the array is as long as the widest vector.
    unsafe {
        let a = s.permute(load(s, p, first), &even);
        let b = s.permute(load(s, p.wrapping_add(S::LANES), second), &even);
        s.select(s.gt(s.load(low.as_ptr()), s.splat(0.5)), a, b)
    }
}

/// Stores the first `n` lanes from `p` on, `stride` elements apart.
///
/// # Safety
/// These elements are writable; `n` is at most [`Simd::LANES`].
#[inline(always)]
pub(crate) unsafe fn store_strided<S: Simd, T: Number>(s: S, p: *mut T, v: S::V, stride: usize, n: usize) {
    if stride == 1 {
        // SAFETY: the caller says that the elements, which are side by side here, are writable.
        return unsafe { store(s, p, v, n) };
    }
    let mut block = [T::ZERO; MAX_LANES];
    // SAFETY: the block is as long as the widest vector.
    unsafe { T::store(s, block.as_mut_ptr(), v) };
    for (i, x) in block[..n].iter().enumerate() {
        // SAFETY: the caller says that the element is writable.
        unsafe { p.add(i * stride).write(*x) };
    }
}
