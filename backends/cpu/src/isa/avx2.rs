//! AVX2 with FMA and F16C.

use std::arch::x86_64::*;
use std::ops::Range;

use half::{bf16, f16};

use super::{Kernel, MAX_LANES, Simd};

/// Proof that the CPU has the set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Avx2(());

macro_rules! arithmetic {
    ($($name:ident($($arg:ident),*) = $intrinsic:ident;)*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: __m256),*) -> __m256 {
            // SAFETY: `self` proves that the CPU has the set.
            unsafe { $intrinsic($($arg),*) }
        }
    )*};
}

impl Avx2 {
    #[inline(always)]
    fn first(self, n: usize) -> __m256i {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe {
            let index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            _mm256_cmpgt_epi32(_mm256_set1_epi32(n.min(8) as i32), index)
        }
    }
}

impl Simd for Avx2 {
    type V = __m256;
    type M = __m256;
    const LANES: usize = 8;
    const ROWS: [usize; 2] = [12, 6];
    const PRODUCTS: usize = 4;
    const MASKED: Option<usize> = Some(size_of::<f32>());

    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn enter<K: Kernel>(kernel: K) -> K::Output {
        kernel.run(Avx2(()))
    }

    arithmetic! {
        add(a, b) = _mm256_add_ps;
        sub(a, b) = _mm256_sub_ps;
        mul(a, b) = _mm256_mul_ps;
        div(a, b) = _mm256_div_ps;
        fma(a, b, c) = _mm256_fmadd_ps;
        max(a, b) = _mm256_max_ps;
        min(a, b) = _mm256_min_ps;
        sqrt(a) = _mm256_sqrt_ps;
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    fn abs(self, a: __m256) -> __m256 {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), a) }
    }
    #[inline(always)]
    fn round(self, a: __m256) -> __m256 {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn pow2(self, n: __m256) -> __m256 {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe {
            let biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        }
    }
    #[inline(always)]
    fn frexp(self, a: __m256) -> (__m256, __m256) {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe {
            let root_half = _mm256_set1_epi32(0x3f35_04f3);
            let bits = _mm256_sub_epi32(_mm256_castps_si256(a), root_half);
            let m = _mm256_add_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x007f_ffff)), root_half);
            (_mm256_castsi256_ps(m), _mm256_cvtepi32_ps(_mm256_srai_epi32::<23>(bits)))
        }
    }
    #[inline(always)]
    fn gt(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe { _mm256_cmp_ps::<_CMP_GT_OQ>(a, b) }
    }
    #[inline(always)]
    fn is_nan(self, a: __m256) -> __m256 {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe { _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a) }
    }
    #[inline(always)]
    fn select(self, m: __m256, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe { _mm256_blendv_ps(b, a, m) }
    }
    #[inline(always)]
    fn permute(self, v: __m256, index: &[u32; MAX_LANES]) -> __m256 {
        // SAFETY: `self` proves that the CPU has the set; the index has more than a whole vector.
        unsafe { _mm256_permutevar8x32_ps(v, _mm256_loadu_si256(index.as_ptr().cast())) }
    }
    #[inline(always)]
    fn even_odd(self, a: __m256, b: __m256) -> [__m256; 2] {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe {
            // Within halves, whose pairs are then put in order.
            let (even, odd) = (_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xdd>(a, b));
            [even, odd].map(|v| _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(_mm256_castps_pd(v))))
        }
    }
    #[inline(always)]
    fn lanes(self, inside: Range<usize>) -> __m256 {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe { _mm256_castsi256_ps(_mm256_andnot_si256(self.first(inside.start), self.first(inside.end))) }
    }
    #[inline(always)]
    fn transpose(self, rows: &mut [__m256; MAX_LANES]) {
        // SAFETY: `self` proves that the CPU has the set.
        unsafe {
            // 2x2 blocks of single lanes, then of pairs, then of halves.
            let mut a = [_mm256_setzero_ps(); 8];
            for i in 0..4 {
                a[2 * i] = _mm256_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
                a[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
            }
            let mut b = [_mm256_setzero_ps(); 8];
            for i in 0..2 {
                for j in 0..2 {
                    b[4 * i + 2 * j] = _mm256_shuffle_ps::<0x44>(a[4 * i + j], a[4 * i + 2 + j]);
                    b[4 * i + 2 * j + 1] = _mm256_shuffle_ps::<0xee>(a[4 * i + j], a[4 * i + 2 + j]);
                }
            }
            for j in 0..4 {
                rows[j] = _mm256_permute2f128_ps::<0x20>(b[j], b[4 + j]);
                rows[4 + j] = _mm256_permute2f128_ps::<0x31>(b[j], b[4 + j]);
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
    unsafe fn load(self, p: *const f32) -> __m256 {
        // SAFETY: the caller says that a whole vector is readable at `p`; `self` proves that the CPU has the set.
        unsafe { _mm256_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn load_splat(self, p: *const f32) -> __m256 {
        // SAFETY: the caller says that an f32 is readable at `p`; `self` proves that the CPU has the set.
        unsafe { _mm256_set1_ps(*p) }
    }
    #[inline(always)]
    unsafe fn load_part(self, p: *const f32, n: usize) -> __m256 {
        // SAFETY: the caller says that `n` elements are readable at `p`, and masked lanes are not touched; `self`
        // proves that the CPU has the set.
        unsafe { _mm256_maskload_ps(p, self.first(n)) }
    }
    #[inline(always)]
    unsafe fn load_lanes(self, p: *const f32, inside: __m256) -> __m256 {
        // SAFETY: the caller says that these lanes are readable at `p`, and masked ones are not touched; `self` proves that the
        // CPU has the set.
        unsafe { _mm256_maskload_ps(p, _mm256_castps_si256(inside)) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m256) {
        // SAFETY: the caller says that a whole vector is writable at `p`; `self` proves that the CPU has the set.
        unsafe { _mm256_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut f32, v: __m256, n: usize) {
        // SAFETY: the caller says that `n` elements are writable at `p`, and masked lanes are not touched; `self`
        // proves that the CPU has the set.
        unsafe { _mm256_maskstore_ps(p, self.first(n), v) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const f16) -> __m256 {
        // SAFETY: the caller says that a whole vector is readable at `p`; `self` proves that the CPU has the set.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut f16, v: __m256) {
        // SAFETY: the caller says that a whole vector is writable at `p`; `self` proves that the CPU has the set.
        unsafe { _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const bf16) -> __m256 {
        // SAFETY: the caller says that a whole vector is readable at `p`; `self` proves that the CPU has the set.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut bf16, v: __m256) {
        // SAFETY: the caller says that a whole vector is writable at `p`; `self` proves that the CPU has the set.
        unsafe {
            let bits = _mm256_castps_si256(v);
            let upper = _mm256_srli_epi32::<16>(bits);
            let odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
            let up = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
            let rounded = _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, up));
            let quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
            let nan = _mm256_castps_si256(self.is_nan(v));
            let result = _mm256_blendv_epi8(rounded, quiet, nan);
            // Packing works within halves of the vector; the two useful quarters are then joined.
            let packed = _mm256_packus_epi32(result, result);
            let joined = _mm256_permute4x64_epi64::<0x08>(packed);
            _mm_storeu_si128(p.cast(), _mm256_castsi256_si128(joined));
        }
    }
}
