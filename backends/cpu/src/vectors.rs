//! Vectors from and to memory: whole or in part, of elements side by side or apart.

use std::ops::Range;

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

/// Rows of a square: each has `count` elements, `stride` apart.
#[derive(Clone, Copy)]
pub(crate) struct SquareRows<T> {
    pub(crate) first: *const T,
    /// From one row to the next.
    pub(crate) pitch: usize,
    pub(crate) stride: usize,
    pub(crate) count: usize,
}

/// The columns of a square of whose rows those `inside` are read, and the others are 0.
///
/// # Safety
/// The elements of the rows inside are readable; they are at most [`Simd::LANES`], and so is a row's count.
#[inline(always)]
pub(crate) unsafe fn transposed<S: Simd, T: Number>(
    s: S,
    inside: Range<usize>,
    rows: SquareRows<T>,
) -> [S::V; MAX_LANES] {
    let SquareRows { first, pitch, stride, count } = rows;
    let mut square = [s.splat(0.0); MAX_LANES];
    // No closure that says how a row is read: called in two places, it would be a function without the instruction set.
    if inside == (0..S::LANES) {
        // A loop of known length, so that the square stays in registers.
        for (i, to) in square[..S::LANES].iter_mut().enumerate() {
            // SAFETY: as of this function.
            *to = unsafe { load_strided(s, first.wrapping_add(i.wrapping_mul(pitch)), stride, count) };
        }
    } else {
        // A short loop, since this is in many kernels.
        for i in inside {
            // SAFETY: as of this function.
            square[i] = unsafe { load_strided(s, first.wrapping_add(i.wrapping_mul(pitch)), stride, count) };
        }
    }
    s.transpose(&mut square);
    square
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

/// The `n` elements at `p`, then zeros, in the order of [`Number::load_two`].
///
/// # Safety
/// `p` is readable for `n` elements; `n` is at most twice [`Simd::LANES`].
#[inline(always)]
pub(crate) unsafe fn load_two<S: Simd, T: Number>(s: S, p: *const T, n: usize) -> [S::V; 2] {
    if n == 2 * S::LANES {
        // SAFETY: the caller says that `n` elements are readable, which are two whole vectors here.
        return unsafe { T::load_two(s, p) };
    }
    let mut block = [T::ZERO; 2 * MAX_LANES];
    // SAFETY: `n` is at most the block's length, which is two of the widest vectors', and the caller answers for `p`.
    unsafe {
        std::ptr::copy_nonoverlapping(p, block.as_mut_ptr(), n);
        T::load_two(s, block.as_ptr())
    }
}

/// Stores the first `n` elements at `p`, of vectors in the order of [`Number::load_two`].
///
/// # Safety
/// `p` is writable for `n` elements; `n` is at most twice [`Simd::LANES`].
#[inline(always)]
pub(crate) unsafe fn store_two<S: Simd, T: Number>(s: S, p: *mut T, v: [S::V; 2], n: usize) {
    if n == 2 * S::LANES {
        // SAFETY: the caller says that `n` elements are writable, which are two whole vectors here.
        return unsafe { T::store_two(s, p, v) };
    }
    let mut block = [T::ZERO; 2 * MAX_LANES];
    // SAFETY: `n` is at most the block's length, which is two of the widest vectors', and the caller answers for `p`.
    unsafe {
        T::store_two(s, block.as_mut_ptr(), v);
        std::ptr::copy_nonoverlapping(block.as_ptr(), p, n);
    }
}

/// Puts floats, which are whole pairs of vectors, in the order of vectors of even and of odd elements.
#[inline(always)]
pub(crate) fn deal<S: Simd>(s: S, floats: &mut [f32]) {
    for pair in floats.chunks_exact_mut(2 * S::LANES) {
        let p = pair.as_mut_ptr();
        // SAFETY: the pair has two whole vectors, of which the odd elements end with the last.
        unsafe {
            let (even, odd) =
                (load_even(s, p.cast_const(), S::LANES), load_even(s, p.add(1).cast_const(), S::LANES));
            s.store(p, even);
            s.store(p.add(S::LANES), odd);
        }
    }
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
    let span = 2 * n - 1;
    let (first, second) = (span.min(S::LANES), span.saturating_sub(S::LANES));
    // SAFETY: the caller says that the `span` elements are readable.
    unsafe {
        let [even, _] = s.even_odd(load(s, p, first), load(s, p.wrapping_add(S::LANES), second));
        even
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
