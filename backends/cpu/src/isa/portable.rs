//! Plain Rust, in blocks of four lanes that compilers turn into what vectors there are.

use half::{bf16, f16};

use super::{Kernel, MAX_LANES, Simd};

const LANES: usize = 4;

#[derive(Debug, Clone, Copy)]
pub(super) struct Portable(());

/// Adding and taking away 1.5 · 2^23 leaves no room for a fraction; the sum's lowest bits are the integer.
const MAGIC: f32 = 12_582_912.0;

#[inline(always)]
fn map(f: impl Fn(usize) -> f32) -> [f32; LANES] {
    std::array::from_fn(f)
}

/// Conversions of 16-bit elements are functions of their own: in software they take dozens of instructions a lane, which would be
/// repeated wherever a kernel loads or stores.
#[inline(never)]
fn widen<T: Copy>(block: &[T; LANES], convert: impl Fn(T) -> f32) -> [f32; LANES] {
    map(|i| convert(block[i]))
}

#[inline(never)]
fn narrow<T>(v: &[f32; LANES], convert: impl Fn(f32) -> T) -> [T; LANES] {
    std::array::from_fn(|i| convert(v[i]))
}

#[inline(always)]
fn mask(f: impl Fn(usize) -> bool) -> [u32; LANES] {
    std::array::from_fn(|i| if f(i) { !0 } else { 0 })
}

impl Simd for Portable {
    type V = [f32; LANES];
    /// All bits or none: compilers have no vectors of `bool`.
    type M = [u32; LANES];
    const LANES: usize = LANES;
    const WRITES_OUT: bool = false;
    const ROWS: [usize; 2] = [8, 4];

    unsafe fn enter<K: Kernel>(kernel: K) -> K::Output {
        kernel.run(Portable(()))
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; LANES]
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        map(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        map(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        map(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        map(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // Not `mul_add`: without the instruction that is a function call for each lane.
        map(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        map(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        map(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn sqrt(self, a: Self::V) -> Self::V {
        map(|i| a[i].sqrt())
    }
    #[inline(always)]
    fn abs(self, a: Self::V) -> Self::V {
        map(|i| a[i].abs())
    }
    #[inline(always)]
    fn round(self, a: Self::V) -> Self::V {
        map(|i| (a[i] + MAGIC) - MAGIC)
    }
    #[inline(always)]
    fn pow2(self, n: Self::V) -> Self::V {
        // Not `n as i32`, which is long, as it has a value for what is no integer too.
        map(|i| {
            f32::from_bits((n[i] + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits()).wrapping_add(127) << 23)
        })
    }
    #[inline(always)]
    fn frexp(self, a: Self::V) -> (Self::V, Self::V) {
        const ROOT_HALF: u32 = 0x3f35_04f3;
        let bits = |i: usize| a[i].to_bits().wrapping_sub(ROOT_HALF);
        let m = map(|i| f32::from_bits((bits(i) & 0x007f_ffff) + ROOT_HALF));
        (m, map(|i| ((bits(i) as i32) >> 23) as f32))
    }
    #[inline(always)]
    fn gt(self, a: Self::V, b: Self::V) -> Self::M {
        mask(|i| a[i] > b[i])
    }
    #[inline(always)]
    fn is_nan(self, a: Self::V) -> Self::M {
        mask(|i| a[i].is_nan())
    }
    #[inline(always)]
    fn select(self, m: Self::M, a: Self::V, b: Self::V) -> Self::V {
        map(|i| f32::from_bits(a[i].to_bits() & m[i] | b[i].to_bits() & !m[i]))
    }
    #[inline(always)]
    fn permute(self, v: Self::V, index: &[u32; MAX_LANES]) -> Self::V {
        map(|i| v[index[i] as usize % LANES])
    }
    #[inline(always)]
    fn transpose(self, rows: &mut [Self::V; MAX_LANES]) {
        let columns = *rows;
        for (i, row) in rows[..LANES].iter_mut().enumerate() {
            *row = map(|j| columns[j][i]);
        }
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> Self::V {
        // SAFETY: the caller says that a whole vector is readable at `p`, and the read assumes no alignment.
        unsafe { p.cast::<Self::V>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_splat(self, p: *const f32) -> Self::V {
        // SAFETY: the caller says that an f32 is readable at `p`.
        [unsafe { *p }; LANES]
    }
    #[inline(always)]
    unsafe fn load_part(self, p: *const f32, n: usize) -> Self::V {
        let mut v = [0.0; LANES];
        // SAFETY: `n` is at most the block's length, and the caller answers for `p`.
        unsafe { std::ptr::copy_nonoverlapping(p, v.as_mut_ptr(), n) };
        v
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: Self::V) {
        // SAFETY: the caller says that a whole vector is writable at `p`, and the write assumes no alignment.
        unsafe { p.cast::<Self::V>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut f32, v: Self::V, n: usize) {
        // SAFETY: `n` is at most the block's length, and the caller answers for `p`.
        unsafe { std::ptr::copy_nonoverlapping(v.as_ptr(), p, n) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const f16) -> Self::V {
        // SAFETY: the caller says that a whole vector is readable at `p`.
        widen(&unsafe { p.cast::<[f16; LANES]>().read_unaligned() }, f16::to_f32)
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut f16, v: Self::V) {
        // SAFETY: the caller says that a whole vector is writable at `p`.
        unsafe { p.cast::<[f16; LANES]>().write_unaligned(narrow(&v, f16::from_f32)) }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const bf16) -> Self::V {
        // SAFETY: the caller says that a whole vector is readable at `p`.
        widen(&unsafe { p.cast::<[bf16; LANES]>().read_unaligned() }, bf16::to_f32)
    }
    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut bf16, v: Self::V) {
        // SAFETY: the caller says that a whole vector is writable at `p`.
        unsafe { p.cast::<[bf16; LANES]>().write_unaligned(narrow(&v, bf16::from_f32)) }
    }
}
