//! NEON of 64-bit ARM.

use std::arch::aarch64::*;

use half::{bf16, f16};

use super::{Kernel, MAX_LANES, Simd};

/// Proof that the CPU has the set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Neon(());

macro_rules! arithmetic {
    ($($name:ident($($arg:ident),*) = $intrinsic:ident;)*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: float32x4_t),*) -> float32x4_t {
            // SAFETY: `self` proves that the CPU has the set.
            unsafe { $intrinsic($($arg),*) }
        }
    )*};
}

impl Simd for Neon {
    type V = float32x4_t;
    type M = uint32x4_t;
    const LANES: usize = 4;
    const ROWS: [usize; 2] = [14, 14];

    #[target_feature(enable = "neon")]
    unsafe fn enter<K: Kernel>(kernel: K) -> K::Output {
        kernel.run(Neon(()))
    }

    arithmetic! {
        add(a, b) = vaddq_f32;
        sub(a, b) = vsubq_f32;
        mul(a, b) = vmulq_f32;
        div(a, b) = vdivq_f32;
        sqrt(a) = vsqrtq_f32;
        abs(a) = vabsq_f32;
        round(a) = vrndnq_f32;
    }

    #[inline(always)]
    fn splat(self, x: f32) -> float32x4_t {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe { vdupq_n_f32(x) }
    }
    #[inline(always)]
    fn fma(self, a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe { vfmaq_f32(c, a, b) }
    }
    // NEON's own maximum and minimum hand NaN on.
    #[inline(always)]
    fn max(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        self.select(self.gt(a, b), a, b)
    }
    #[inline(always)]
    fn min(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        self.select(self.gt(b, a), a, b)
    }
    #[inline(always)]
    fn pow2(self, n: float32x4_t) -> float32x4_t {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe { vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)))) }
    }
    #[inline(always)]
    fn frexp(self, a: float32x4_t) -> (float32x4_t, float32x4_t) {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe {
            let root_half = vdupq_n_s32(0x3f35_04f3);
            let bits = vsubq_s32(vreinterpretq_s32_f32(a), root_half);
            let m = vaddq_s32(vandq_s32(bits, vdupq_n_s32(0x007f_ffff)), root_half);
            (vreinterpretq_f32_s32(m), vcvtq_f32_s32(vshrq_n_s32::<23>(bits)))
        }
    }
    #[inline(always)]
    fn gt(self, a: float32x4_t, b: float32x4_t) -> uint32x4_t {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe { vcgtq_f32(a, b) }
    }
    #[inline(always)]
    fn is_nan(self, a: float32x4_t) -> uint32x4_t {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe { vmvnq_u32(vceqq_f32(a, a)) }
    }
    #[inline(always)]
    fn select(self, m: uint32x4_t, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe { vbslq_f32(m, a, b) }
    }
    #[inline(always)]
    fn permute(self, v: float32x4_t, index: &[u32; MAX_LANES]) -> float32x4_t {
        let mut lanes = [0.0; 4];
        // SAFETY: `self` proves that the CPU has the set; the arrays have four elements.
        unsafe {
            vst1q_f32(lanes.as_mut_ptr(), v);
            let picked: [f32; 4] = std::array::from_fn(|i| lanes[index[i] as usize % 4]);
            vld1q_f32(picked.as_ptr())
        }
    }
    #[inline(always)]
    fn transpose(self, rows: &mut [float32x4_t; MAX_LANES]) {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe {
            let pair = |a, b| {
                let (lo, hi) = (vtrn1q_f32(a, b), vtrn2q_f32(a, b));
                (vreinterpretq_f64_f32(lo), vreinterpretq_f64_f32(hi))
            };
            let (a, b) = pair(rows[0], rows[1]);
            let (c, d) = pair(rows[2], rows[3]);
            rows[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
            rows[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
            rows[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
            rows[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
        }
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> float32x4_t {
        // SAFETY: the caller says that a whole vector is readable at `p`; `self` proves that the CPU has the set.
        unsafe { vld1q_f32(p) }
    }
    #[inline(always)]
    unsafe fn load_splat(self, p: *const f32) -> float32x4_t {
        // SAFETY: the caller says that an f32 is readable at `p`; `self` proves that the CPU has the set.
        unsafe { vld1q_dup_f32(p) }
    }
    #[inline(always)]
    unsafe fn load_part(self, p: *const f32, n: usize) -> float32x4_t {
        let mut block = [0.0; 4];
        // SAFETY: `n` is at most the block's length, and the caller answers for `p`.
        unsafe {
            std::ptr::copy_nonoverlapping(p, block.as_mut_ptr(), n);
            vld1q_f32(block.as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: float32x4_t) {
        // SAFETY: the caller says that a whole vector is writable at `p`; `self` proves that the CPU has the set.
        unsafe { vst1q_f32(p, v) }
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut f32, v: float32x4_t, n: usize) {
        let mut block = [0.0; 4];
        // SAFETY: `n` is at most the block's length, and the caller answers for `p`.
        unsafe {
            vst1q_f32(block.as_mut_ptr(), v);
            std::ptr::copy_nonoverlapping(block.as_ptr(), p, n);
        }
    }
    // The conversion instructions between f16 and f32 have no stable intrinsics; `half` uses them.
    #[inline(always)]
    unsafe fn load_f16(self, p: *const f16) -> float32x4_t {
        // SAFETY: the caller says that a whole vector is readable at `p`; `self` proves that the CPU has the set.
        unsafe {
            let block: [f32; 4] = std::array::from_fn(|i| p.add(i).read().to_f32());
            vld1q_f32(block.as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut f16, v: float32x4_t) {
        let mut block = [0.0; 4];
        // SAFETY: the caller says that a whole vector is writable at `p`; `self` proves that the CPU has the set.
        unsafe {
            vst1q_f32(block.as_mut_ptr(), v);
            for (i, &x) in block.iter().enumerate() {
                p.add(i).write(f16::from_f32(x));
            }
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const bf16) -> float32x4_t {
        // SAFETY: the caller says that a whole vector is readable at `p`; `self` proves that the CPU has the set.
        unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut bf16, v: float32x4_t) {
        // SAFETY: the caller says that a whole vector is writable at `p`; `self` proves that the CPU has the set.
        unsafe {
            let bits = vreinterpretq_u32_f32(v);
            let upper = vshrq_n_u32::<16>(bits);
            let up = vaddq_u32(vandq_u32(upper, vdupq_n_u32(1)), vdupq_n_u32(0x7fff));
            let rounded = vshrq_n_u32::<16>(vaddq_u32(bits, up));
            let quiet = vorrq_u32(upper, vdupq_n_u32(0x40));
            vst1_u16(p.cast(), vmovn_u32(vbslq_u32(self.is_nan(v), quiet, rounded)));
        }
    }
}
