//! AVX-512 F, BW, DQ and VL.

use std::arch::x86_64::*;
use std::ops::Range;

use half::{bf16, f16};

use super::{Kernel, MAX_LANES, Simd};

/// Proof that the CPU has the set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512(());

/// The upper half of each of 16 lanes, side by side.
static UPPER_HALVES: [u16; 32] = {
    let (mut halves, mut lane) = ([0; 32], 0);
    while lane < 16 {
        halves[lane] = 2 * lane as u16 + 1;
        lane += 1;
    }
    halves
};

impl Avx512 {
    /// The proof.
    ///
    /// # Safety
    /// The CPU has the set.
    #[inline(always)]
    pub(crate) unsafe fn assume() -> Self {
        Avx512(())
    }
}

macro_rules! arithmetic {
    ($($name:ident($($arg:ident),*) = $intrinsic:ident;)*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: __m512),*) -> __m512 {
            // SAFETY: `self` proves that the CPU has the set.
            unsafe { $intrinsic($($arg),*) }
        }
    )*};
}

#[inline(always)]
fn first(n: usize) -> __mmask16 {
    ((1u32 << n) - 1) as __mmask16
}

impl Simd for Avx512 {
    type V = __m512;
    type M = __mmask16;
    const LANES: usize = 16;
    const ROWS: [usize; 2] = [14, 14];
    const DEALS_BF16: bool = true;
    const MASKED: Option<usize> = Some(size_of::<u16>());

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
    unsafe fn enter<K: Kernel>(kernel: K) -> K::Output {
        kernel.run(Avx512(()))
    }

    arithmetic! {
        add(a, b) = _mm512_add_ps;
        sub(a, b) = _mm512_sub_ps;
        mul(a, b) = _mm512_mul_ps;
        div(a, b) = _mm512_div_ps;
        fma(a, b, c) = _mm512_fmadd_ps;
        max(a, b) = _mm512_max_ps;
        min(a, b) = _mm512_min_ps;
        sqrt(a) = _mm512_sqrt_ps;
        abs(a) = _mm512_abs_ps;
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn pow2(self, n: __m512) -> __m512 {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe {
            let biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        }
    }
    #[inline(always)]
    fn times_pow2(self, x: __m512, n: __m512) -> __m512 {
        self.scale(x, n)
    }
    #[inline(always)]
    fn scale(self, x: __m512, n: __m512) -> __m512 {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe { _mm512_scalef_ps(x, n) }
    }
    #[inline(always)]
    fn frexp(self, a: __m512) -> (__m512, __m512) {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe {
            let root_half = _mm512_set1_epi32(0x3f35_04f3);
            let bits = _mm512_sub_epi32(_mm512_castps_si512(a), root_half);
            let m = _mm512_add_epi32(_mm512_and_epi32(bits, _mm512_set1_epi32(0x007f_ffff)), root_half);
            (_mm512_castsi512_ps(m), _mm512_cvtepi32_ps(_mm512_srai_epi32::<23>(bits)))
        }
    }
    #[inline(always)]
    fn gt(self, a: __m512, b: __m512) -> __mmask16 {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe { _mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b) }
    }
    #[inline(always)]
    fn is_nan(self, a: __m512) -> __mmask16 {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe { _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a) }
    }
    #[inline(always)]
    fn select(self, m: __mmask16, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe { _mm512_mask_blend_ps(m, b, a) }
    }
    #[inline(always)]
    fn permute(self, v: __m512, index: &[u32; MAX_LANES]) -> __m512 {
        // SAFETY: `self` proves that the CPU has the set; the index has a whole vector.
        unsafe { _mm512_permutexvar_ps(_mm512_loadu_si512(index.as_ptr().cast()), v) }
    }
    #[inline(always)]
    fn even_odd(self, a: __m512, b: __m512) -> [__m512; 2] {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
            [_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b)]
        }
    }
    #[inline(always)]
    fn slide<const N: usize>(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe {
            let lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            _mm512_permutex2var_ps(a, _mm512_add_epi32(lane, _mm512_set1_epi32(N as i32)), b)
        }
    }
    #[inline(always)]
    fn lanes(self, inside: Range<usize>) -> __mmask16 {
        first(inside.end.min(16)) & !first(inside.start.min(16))
    }
    #[inline(always)]
    fn transpose(self, rows: &mut [__m512; MAX_LANES]) {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe {
            // 2x2 blocks of single lanes, then of pairs, then of quarters, then of halves.
            let mut a = [_mm512_setzero_ps(); 16];
            for i in 0..8 {
                a[2 * i] = _mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
                a[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
            }
            let mut b = [_mm512_setzero_ps(); 16];
            for i in 0..4 {
                for j in 0..2 {
                    let (x, y) = (_mm512_castps_pd(a[4 * i + j]), _mm512_castps_pd(a[4 * i + 2 + j]));
                    b[4 * i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
                    b[4 * i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
                }
            }
            // b[4i + j]: quarter q holds column 4q + j of rows 4i..4i+4
            for j in 0..4 {
                let x = _mm512_shuffle_f32x4::<0x88>(b[j], b[4 + j]);
                let y = _mm512_shuffle_f32x4::<0xdd>(b[j], b[4 + j]);
                let z = _mm512_shuffle_f32x4::<0x88>(b[8 + j], b[12 + j]);
                let w = _mm512_shuffle_f32x4::<0xdd>(b[8 + j], b[12 + j]);
                rows[j] = _mm512_shuffle_f32x4::<0x88>(x, z);
                rows[8 + j] = _mm512_shuffle_f32x4::<0xdd>(x, z);
                rows[4 + j] = _mm512_shuffle_f32x4::<0x88>(y, w);
                rows[12 + j] = _mm512_shuffle_f32x4::<0xdd>(y, w);
            }
        }
    }

    #[inline(always)]
    fn prefetch(self, p: *const f32) {
        // SAFETY: prefetching never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    fn prefetch_far(self, p: *const f32) {
        // SAFETY: prefetching never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }
    #[inline(always)]
    fn prefetch_write(self, p: *mut f32) {
        // SAFETY: prefetching never faults.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(p.cast_const().cast()) }
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m512 {
        // SAFETY: the caller says that a whole vector is readable at `p`; `self` proves that the CPU has the set.
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn load_splat(self, p: *const f32) -> __m512 {
        // SAFETY: the caller says that an f32 is readable at `p`; `self` proves that the CPU has the set.
        unsafe { _mm512_set1_ps(*p) }
    }
    #[inline(always)]
    unsafe fn load_part(self, p: *const f32, n: usize) -> __m512 {
        // SAFETY: the caller says that `n` elements are readable at `p`, and masked lanes are not touched; `self`
        // proves that the CPU has the set.
        unsafe { _mm512_maskz_loadu_ps(first(n), p) }
    }
    #[inline(always)]
    unsafe fn load_lanes(self, p: *const f32, inside: __mmask16) -> __m512 {
        // SAFETY: the caller says that these lanes are readable at `p`, and masked ones are not touched; `self` proves that the
        // CPU has the set.
        unsafe { _mm512_maskz_loadu_ps(inside, p) }
    }
    #[inline(always)]
    unsafe fn load_lanes_16(self, p: *const u16, inside: __mmask16) -> [u16; MAX_LANES] {
        let mut block = [0; MAX_LANES];
        // SAFETY: as of `load_lanes`; the block has a vector.
        unsafe {
            let part = _mm256_maskz_loadu_epi16(inside, p.cast());
            _mm256_storeu_si256(block.as_mut_ptr().cast(), part);
        }
        block
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m512) {
        // SAFETY: the caller says that a whole vector is writable at `p`; `self` proves that the CPU has the set.
        unsafe { _mm512_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut f32, v: __m512, n: usize) {
        // SAFETY: the caller says that `n` elements are writable at `p`, and masked lanes are not touched; `self`
        // proves that the CPU has the set.
        unsafe { _mm512_mask_storeu_ps(p, first(n), v) }
    }
    #[inline(always)]
    unsafe fn load_part_16(self, p: *const u16, n: usize) -> [u16; MAX_LANES] {
        let mut block = [0; MAX_LANES];
        // SAFETY: the caller says that `n` elements are readable at `p`, and masked ones are not touched; `self` proves that
        // the CPU has the set. The block has a vector.
        unsafe {
            let part = _mm256_maskz_loadu_epi16(first(n), p.cast());
            _mm256_storeu_si256(block.as_mut_ptr().cast(), part);
        }
        block
    }
    #[inline(always)]
    unsafe fn store_part_16(self, p: *mut u16, block: [u16; MAX_LANES], n: usize) {
        // SAFETY: the caller says that `n` elements are writable at `p`, and masked ones are not touched; `self` proves that
        // the CPU has the set. The block has a vector.
        unsafe { _mm256_mask_storeu_epi16(p.cast(), first(n), _mm256_loadu_si256(block.as_ptr().cast())) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const f16) -> __m512 {
        // SAFETY: the caller says that a whole vector is readable at `p`; `self` proves that the CPU has the set.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut f16, v: __m512) {
        // SAFETY: the caller says that a whole vector is writable at `p`; `self` proves that the CPU has the set.
        unsafe { _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const bf16) -> __m512 {
        // SAFETY: the caller says that a whole vector is readable at `p`; `self` proves that the CPU has the set.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut bf16, v: __m512) {
        // SAFETY: the caller says that a whole vector is writable at `p`; `self` proves that the CPU has the set.
        unsafe {
            // NaN, quiet or not, becomes the one whose lower half is 0.
            let nan = _mm512_set1_epi32(0x33);
            let bits = _mm512_castps_si512(_mm512_fixupimm_ps::<0>(v, v, nan));
            // A half goes up where that makes an odd number even.
            let odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(1 << 16));
            let up = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
            let up = _mm512_mask_add_epi32(up, odd, up, _mm512_set1_epi32(1));
            let upper = _mm512_permutexvar_epi16(_mm512_loadu_si512(UPPER_HALVES.as_ptr().cast()), up);
            _mm256_storeu_si256(p.cast(), _mm512_castsi512_si256(upper));
        }
    }
    #[inline(always)]
    unsafe fn load_two_bf16(self, p: *const bf16) -> [__m512; 2] {
        // SAFETY: the caller says that two whole vectors are readable at `p`; `self` proves that the CPU has the set.
        unsafe {
            let both = _mm512_loadu_si512(p.cast());
            let odd = _mm512_and_si512(both, _mm512_set1_epi32(0xffff_0000u32 as i32));
            [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(both)), _mm512_castsi512_ps(odd)]
        }
    }
    #[inline(always)]
    unsafe fn store_two_bf16(self, p: *mut bf16, [even, odd]: [__m512; 2]) {
        // SAFETY: the caller says that two whole vectors are writable at `p`; `self` proves that the CPU has the set.
        unsafe {
            // NaN, quiet or not, becomes the one whose lower half is 0.
            let nan = _mm512_set1_epi32(0x33);
            let [even, odd] = [even, odd].map(|v| _mm512_castps_si512(_mm512_fixupimm_ps::<0>(v, v, nan)));
            let top = _mm512_set1_epi32(0xffff_0000u32 as i32);
            // a | b & c, and a | b & !c.
            let upper = _mm512_ternarylogic_epi32::<0xf8>(_mm512_srli_epi32::<16>(even), odd, top);
            let lower = _mm512_ternarylogic_epi32::<0xf4>(_mm512_slli_epi32::<16>(odd), even, top);
            // Above a half, or a half above an odd number: lower | upper & 1 is above 0x8000.
            let rest = _mm512_ternarylogic_epi32::<0xf8>(lower, upper, _mm512_set1_epi16(1));
            let above = _mm512_subs_epu16(rest, _mm512_set1_epi16(i16::MIN));
            let up = _mm512_min_epu16(above, _mm512_set1_epi16(1));
            _mm512_storeu_si512(p.cast(), _mm512_add_epi16(upper, up));
        }
    }
}
