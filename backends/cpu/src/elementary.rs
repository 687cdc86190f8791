//! Exponentials and logarithms of vectors, and what is made of them.
//!
//! Each function is a polynomial on a reduced argument, with no table and no branch, so that every lane gets the same
//! result wherever it stands. `activation.rs` says how exact they are, and tests it.

use crate::isa::Simd;

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two parts, the first with so few bits that its products with exponents are exact.
const LN2: [f32; 2] = [355.0 / 512.0, -2.121_944_4e-4];

/// e to a power not above this is 0, also multiplied by the power or by less.
const LEAST: f32 = -112.0;

/// `(e^r − 1 − r) / r²` for |r| ≤ ½ ln 2 (a little more does not hurt), by Estrin's scheme, whose sums do not wait for one another.
#[inline(always)]
fn exp_series<S: Simd>(s: S, r: S::V, square: S::V) -> S::V {
    let a = s.fma(s.splat(1.987_569_1e-4), r, s.splat(1.398_2e-3));
    let b = s.fma(s.splat(8.333_452e-3), r, s.splat(4.166_579_6e-2));
    let c = s.fma(s.splat(0.166_666_65), r, s.splat(0.5));
    s.fma(s.fma(a, square, b), square, c)
}

/// `e^r − 1`, as [`exp_series`] has it.
#[inline(always)]
fn expm1_reduced<S: Simd>(s: S, r: S::V) -> S::V {
    let square = s.mul(r, r);
    s.fma(square, exp_series(s, r, square), r)
}

/// `e^r`, as [`exp_series`] has it.
#[inline(always)]
fn exp_reduced<S: Simd>(s: S, r: S::V) -> S::V {
    let square = s.mul(r, r);
    s.fma(square, exp_series(s, r, square), s.add(s.splat(1.0), r))
}

/// `x = n · ln 2 + r`: (n, r).
#[inline(always)]
fn reduce<S: Simd>(s: S, x: S::V) -> (S::V, S::V) {
    let n = s.round(s.mul(x, s.splat(LOG2_E)));
    let r = s.fma(n, s.splat(-LN2[0]), x);
    (n, s.fma(n, s.splat(-LN2[1]), r))
}

/// `e^(x + tail)` for a tail that is small beside 1, as a number near 1 and a power of two.
#[inline(always)]
fn exp_parts<S: Simd>(s: S, x: S::V, tail: S::V) -> (S::V, S::V) {
    // The second operand of `min` and `max` is what NaN gives.
    let x = s.max(s.splat(LEAST), s.min(s.splat(90.0), x));
    let (n, r) = reduce(s, x);
    (exp_reduced(s, s.add(r, tail)), n)
}

/// `e^(x + tail)` for a tail that is small beside 1.
#[inline(always)]
fn exp_with_tail<S: Simd>(s: S, x: S::V, tail: S::V) -> S::V {
    let (e, n) = exp_parts(s, x, tail);
    s.scale(e, n)
}

/// `e^x`
#[inline(always)]
fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    exp_with_tail(s, x, s.splat(0.0))
}

/// `e^x − 1` for x ≤ 0, with full relative precision near 0.
#[inline(always)]
pub(crate) fn expm1_negative<S: Simd>(s: S, x: S::V) -> S::V {
    let clamped = s.max(s.splat(-30.0), s.min(s.splat(0.0), x));
    let (n, r) = reduce(s, clamped);
    let scale = s.pow2(n);
    let result = s.fma(scale, expm1_reduced(s, r), s.sub(scale, s.splat(1.0)));
    // Keeps NaN, and the sign of −0.
    s.select(s.gt(s.splat(0.0), x), result, x)
}

/// Exponentials are multiplied by this power of two, so that those down to [`FAR_BELOW`] are in f32's range, and its negation undoes it.
const SPARE: f32 = -16.0;
/// 2 to the power of [`SPARE`].
const SPARED: f32 = 1.0 / 65_536.0;
/// e to this power, negated, has 2^143 in it, times 2^-16 the last power of two of f32.
const FAR_BELOW: f32 = -99.0;

/// `numerator / (1 + e^−(v + tail))` for a `v` above [`FAR_BELOW`], and a tail that is small beside 1.
#[inline(always)]
fn times_logistic<S: Simd>(s: S, numerator: S::V, v: S::V, tail: S::V) -> S::V {
    // Below this bound, whose power of two f32 has times 2^-16, the sum is 1.
    let (n, r) = reduce(s, s.max(s.splat(-76.0), s.sub(s.splat(0.0), v)));
    let e = s.times_pow2(exp_reduced(s, s.sub(r, tail)), s.add(n, s.splat(SPARE)));
    s.div(s.mul(numerator, s.splat(SPARED)), s.add(e, s.splat(SPARED)))
}

/// `1 / (1 + e^−x)`
#[inline(always)]
pub(crate) fn logistic<S: Simd>(s: S, x: S::V) -> S::V {
    let result = times_logistic(s, s.splat(1.0), x, s.splat(0.0));
    // 0, or NaN.
    s.select(s.gt(x, s.splat(FAR_BELOW)), result, s.max(s.splat(0.0), x))
}

#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::V) -> S::V {
    const C: [f32; 4] = [2.063_908_8e-2, -5.373_971_6e-2, 0.133_314_42, -0.333_332_8];
    let (one, magnitude) = (s.splat(1.0), s.abs(x));
    let z = s.mul(x, x);
    let mut p = s.splat(-5.704_988_7e-3);
    for c in C {
        p = s.fma(p, z, s.splat(c));
    }
    let near = s.fma(s.mul(p, z), x, x);
    // From 15 on the quotient is below half a unit of 1.
    let (n, r) = reduce(s, s.min(s.splat(30.0), s.add(magnitude, magnitude)));
    let e = s.times_pow2(exp_reduced(s, r), n);
    let far = s.sub(one, s.div(s.splat(2.0), s.add(e, one)));
    let far = s.select(s.gt(s.splat(0.0), x), s.sub(s.splat(0.0), far), far);
    // NaN is not far.
    s.select(s.gt(magnitude, s.splat(0.625)), far, near)
}

/// `s = f / (2 + f)` for a number `1 + f` in √½..√2, and `R` with `ln(1 + f) = 2s + s·R`.
#[inline(always)]
fn log_series<S: Simd>(s: S, f: S::V) -> (S::V, S::V) {
    const C: [f32; 3] = [0.284_987_87, 0.399_999_7, 0.666_666_6];
    let q = s.div(f, s.add(f, s.splat(2.0)));
    let z = s.mul(q, q);
    let mut p = s.splat(0.242_790_79);
    for c in C {
        p = s.fma(p, z, s.splat(c));
    }
    (q, s.mul(z, p))
}

/// `ln(1 + z)` for z in 0..=1.
#[inline(always)]
fn log1p_unit<S: Simd>(s: S, z: S::V) -> S::V {
    let one = s.splat(1.0);
    let u = s.add(one, z);
    // What rounding took from u, as a correction of the result.
    let lost = s.div(s.sub(z, s.sub(u, one)), u);
    let (m, e) = s.frexp(u);
    let f = s.sub(m, one);
    let (q, r) = log_series(s, f);
    // ln(1 + f) = f − q·(f − R), which is exact for small f where 2q is not.
    let log = s.sub(f, s.sub(s.mul(q, s.sub(f, r)), s.fma(e, s.splat(LN2[1]), lost)));
    s.fma(e, s.splat(LN2[0]), log)
}

/// `ln(1 + e^x)`
#[inline(always)]
pub(crate) fn softplus<S: Simd>(s: S, x: S::V) -> S::V {
    let tail = log1p_unit(s, exp(s, s.sub(s.splat(0.0), s.abs(x))));
    let result = s.add(s.max(x, s.splat(0.0)), tail);
    s.select(s.is_nan(x), x, result)
}

/// `x · g` for a function g that goes to 1 at ∞ and to 0 at −∞: the result where it is not x, nor what ∞ · 0 is.
#[inline(always)]
fn at_infinities<S: Simd>(s: S, x: S::V, result: S::V) -> S::V {
    // −∞ and NaN give NaN.
    let result = s.select(s.gt(x, s.splat(f32::MAX)), x, result);
    s.select(s.gt(x, s.splat(f32::NEG_INFINITY)), result, s.sub(x, x))
}

/// `x / (1 + e^−(v + tail))` for a `v` that has the sign of x and is not nearer to 0.
#[inline(always)]
fn gated<S: Simd>(s: S, x: S::V, v: S::V, tail: S::V) -> S::V {
    // −0, but −∞ and NaN give NaN.
    s.select(s.gt(v, s.splat(FAR_BELOW)), times_logistic(s, x, v, tail), s.mul(x, s.splat(0.0)))
}

/// `x / (1 + e^−x)`
#[inline(always)]
pub(crate) fn silu<S: Simd>(s: S, x: S::V) -> S::V {
    gated(s, x, x, s.splat(0.0))
}

/// `½ x · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`
#[inline(always)]
pub(crate) fn gelu_tanh<S: Simd>(s: S, x: S::V) -> S::V {
    // 2 √(2/π) and its product with 0.044715, each in two floats: errors of v count as many times as v is large.
    const A: [f32; 2] = [1.595_769_2, -4.534_068e-8];
    const B: [f32; 2] = [0.071_354_814, 2.398_832_5e-9];
    let near = s.max(s.splat(-16.0), s.min(s.splat(16.0), x));
    let (square, square_error) = product(s, near, near);
    let (cubic, cubic_error) = product(s, square, s.splat(B[0]));
    let cubic_error = s.fma(square_error, s.splat(B[0]), s.fma(square, s.splat(B[1]), cubic_error));
    // Knuth's sum, since either may be the larger.
    let sum = s.add(cubic, s.splat(A[0]));
    let part = s.sub(sum, cubic);
    let sum_error = s.add(s.sub(cubic, s.sub(sum, part)), s.sub(s.splat(A[0]), part));
    let sum_error = s.add(s.add(sum_error, s.splat(A[1])), cubic_error);
    let (v, v_error) = product(s, sum, near);
    gated(s, x, v, s.fma(sum_error, near, v_error))
}

/// `½ x · (1 + erf(x / √2))`
#[inline(always)]
pub(crate) fn gelu<S: Simd>(s: S, x: S::V) -> S::V {
    // (1 + t) · e^(t²/2) · ½ erfc(t / √2) by q = (t − 2.5) / (t + 2.5), for t up to 15, interpolated at Chebyshev's points.
    const C: [f32; 10] = [
        -2.287_253_9e-4,
        2.579_774_4e-6,
        1.266_137_8e-3,
        1.283_105_5e-3,
        -6.048_581_6e-3,
        -8.699_635e-3,
        4.606_306e-2,
        -3.771_667_6e-2,
        -9.158_749e-2,
        4.946_596_6e-1,
    ];
    // e to half of its square, negated, has 2^-141 in it, which is f32's range times 2^16.
    const FAR: f32 = 14.0;
    let one = s.splat(1.0);
    let t = s.min(s.abs(x), s.splat(FAR));
    let q = s.div(s.sub(t, s.splat(2.5)), s.add(t, s.splat(2.5)));
    let mut p = s.splat(-6.463_243e-5);
    for c in C {
        p = s.fma(p, q, s.splat(c));
    }
    // t · Φ(−t), which is −gelu(−t) and what gelu(t) lacks of t.
    let factor = s.div(s.mul(t, p), s.add(one, t));
    let (square, square_error) = product(s, t, t);
    let half = s.splat(-0.5);
    let (n, r) = reduce(s, s.mul(half, square));
    let e = s.add(expm1_reduced(s, s.fma(half, square_error, r)), one);
    let tail = s.times_pow2(s.mul(factor, e), s.sub(n, s.splat(SPARE)));
    let tail = s.mul(tail, s.splat(SPARED));
    // Far below 0 it is −0, but −∞ and NaN give NaN.
    s.select(s.gt(x, s.splat(-FAR)), s.sub(s.max(x, s.splat(0.0)), tail), s.mul(x, s.splat(0.0)))
}

/// `x · tanh(ln(1 + e^x))`
#[inline(always)]
pub(crate) fn mish<S: Simd>(s: S, x: S::V) -> S::V {
    // With w = e^x the tanh is w (w + 2) / (w (w + 2) + 2); with w = e^−x it is (1 + 2w) / (1 + 2w + 2w²).
    let (zero, one, two) = (s.splat(0.0), s.splat(1.0), s.splat(2.0));
    let (e, n) = exp_parts(s, s.sub(zero, s.abs(x)), zero);
    let w = s.scale(e, n);
    let is_positive = s.gt(x, zero);
    let above = s.fma(two, w, one);
    let product = s.mul(s.max(x, s.splat(LEAST)), e);
    let below = s.fma(product, w, s.add(product, product));
    let numerator = s.select(is_positive, s.mul(x, above), s.scale(below, n));
    let terms = s.select(is_positive, s.add(w, one), s.mul(s.splat(0.5), s.add(w, two)));
    let rest = s.select(is_positive, one, two);
    let denominator = s.fma(s.add(w, w), terms, rest);
    // Far from 0 the quotient is 1, and the product may overflow.
    let far = s.gt(x, s.splat(30.0));
    at_infinities(s, x, s.select(far, x, s.div(numerator, denominator)))
}

/// The product and what rounding took from it.
#[inline(always)]
fn product<S: Simd>(s: S, a: S::V, b: S::V) -> (S::V, S::V) {
    // Veltkamp's and Dekker's way, which also works where `fma` rounds twice.
    let split = |x: S::V| {
        let c = s.mul(x, s.splat(4097.0));
        let high = s.sub(c, s.sub(c, x));
        (high, s.sub(x, high))
    };
    let p = s.mul(a, b);
    let ((ah, al), (bh, bl)) = (split(a), split(b));
    let error = s.sub(s.mul(ah, bh), p);
    let error = s.add(s.add(error, s.mul(ah, bl)), s.mul(al, bh));
    (p, s.add(error, s.mul(al, bl)))
}

/// `base^exponent` for bases above 0. The logarithm is carried in two floats, because its error counts
/// as many times as the exponent says.
#[inline(always)]
pub(crate) fn power<S: Simd>(s: S, base: S::V, exponent: f32) -> S::V {
    let one = s.splat(1.0);
    let gamma = s.splat(exponent.clamp(-1e30, 1e30));
    // Bases are at least 1e-6, or infinite.
    let finite = s.min(base, s.splat(f32::MAX));
    let (m, e) = s.frexp(finite);
    let f = s.sub(m, one);
    let (q, r) = log_series(s, f);
    // What q = f / (2 + f) lacks: (f − q·(2 + f)) / (2 + f).
    let two_f = s.add(f, s.splat(2.0));
    let two_f_error = s.sub(f, s.sub(two_f, s.splat(2.0)));
    let (back, back_error) = product(s, q, two_f);
    let lack = s.sub(s.sub(s.sub(f, back), back_error), s.mul(q, two_f_error));
    let lack = s.div(lack, two_f);
    // e·ln 2 + 2q + (2·lack + q·R), largest first.
    let large = s.mul(e, s.splat(LN2[0]));
    let double = s.add(q, q);
    let sum = s.add(large, double);
    // Knuth's sum, since either may be the larger.
    let part = s.sub(sum, large);
    let sum_error = s.add(s.sub(large, s.sub(sum, part)), s.sub(double, part));
    let small = s.add(s.fma(q, r, s.add(lack, lack)), s.fma(e, s.splat(LN2[1]), sum_error));
    let high = s.add(sum, small);
    let low = s.sub(small, s.sub(high, sum));
    let (p, p_error) = product(s, high, gamma);
    let tail = s.fma(low, gamma, p_error);
    // Far outside of the range of the exponential the tail means nothing, and may have overflowed.
    let tail = s.select(s.gt(s.splat(200.0), s.abs(p)), tail, s.splat(0.0));
    let result = exp_with_tail(s, p, tail);
    let at_infinity = if exponent > 0.0 {
        f32::INFINITY
    } else if exponent < 0.0 {
        0.0
    } else {
        1.0
    };
    let result = s.select(s.gt(base, s.splat(f32::MAX)), s.splat(at_infinity), result);
    if exponent.is_nan() { s.splat(f32::NAN) } else { result }
}
