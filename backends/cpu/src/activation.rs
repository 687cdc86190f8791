//! Activations on vectors.
//!
//! Each function is a polynomial on a reduced argument, with no table and no branch, so every lane gets
//! the same result wherever it stands. Errors are at most 4 units in the last place of f32.
//!
//! NaN: where MIOpen's formula is written with `min` and `max` (CLIPPEDRELU, CLAMP) a NaN gives the other
//! operand, as C's `fmin` and `fmax` do; RELU(NaN) is 0; everything else hands NaN on.

use fuseplan_api::{ActivationMode, ActivationParams, DataType};

use crate::isa::Simd;

/// An activation with its scalars, ready to be applied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Activation {
    mode: ActivationMode,
    alpha: f32,
    beta: f32,
    gamma: f32,
    /// POWER is 0 where its base is not above this.
    threshold: f32,
}

/// An activation that a few instructions compute in a register.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Simple {
    /// `x`
    Identity,
    /// `x > 0 ? x : slope · x`
    Slope(f32),
    /// `x > 0 ? x : 0`, then at most this.
    Clip(f32),
}

impl Activation {
    pub(crate) fn new(mode: ActivationMode, params: &ActivationParams, data_type: DataType) -> Self {
        Activation {
            mode,
            alpha: params.alpha as f32,
            beta: params.beta as f32,
            gamma: params.gamma as f32,
            threshold: if data_type == DataType::Float { 1e-6 } else { 1e-4 },
        }
    }

    /// The same function in its simple form, if it has one.
    pub(crate) fn simple(&self) -> Option<Simple> {
        match self.mode {
            ActivationMode::Pasthru => Some(Simple::Identity),
            ActivationMode::Relu => Some(Simple::Clip(f32::INFINITY)),
            ActivationMode::ClippedRelu if !self.alpha.is_nan() => Some(Simple::Clip(self.alpha)),
            ActivationMode::LeakyRelu => Some(Simple::Slope(self.alpha)),
            _ => None,
        }
    }

    /// Applies the activation to `vectors` whole vectors at `p`, in place.
    ///
    /// # Safety
    /// `p` is readable and writable for them.
    #[inline(always)]
    pub(crate) unsafe fn apply<S: Simd>(&self, s: S, p: *mut f32, vectors: usize) {
        let (alpha, beta) = (s.splat(self.alpha), s.splat(self.beta));
        let zero = s.splat(0.0);
        // The mode is looked at once for the row, not once for each vector.
        macro_rules! each {
            ($x:ident => $y:expr) => {
                for i in 0..vectors {
                    // SAFETY: the caller's.
                    unsafe {
                        let $x = s.load(p.add(i * S::LANES));
                        s.store(p.add(i * S::LANES), $y);
                    }
                }
            };
        }
        match self.mode {
            ActivationMode::Logistic => each!(x => logistic(s, x)),
            ActivationMode::Tanh => each!(x => s.mul(beta, tanh(s, s.mul(alpha, x)))),
            ActivationMode::Relu => each!(x => s.max(x, zero)),
            ActivationMode::SoftRelu => each!(x => softplus(s, x)),
            ActivationMode::Abs => each!(x => s.abs(x)),
            ActivationMode::Power => {
                let threshold = s.splat(self.threshold);
                each!(x => {
                    let base = s.fma(beta, x, alpha);
                    let result = power(s, base, self.gamma);
                    let result = s.select(s.gt(base, threshold), result, zero);
                    s.select(s.is_nan(base), base, result)
                });
            }
            ActivationMode::ClippedRelu => each!(x => s.min(s.max(x, zero), alpha)),
            ActivationMode::LeakyRelu => each!(x => s.select(s.gt(x, zero), x, s.mul(alpha, x))),
            ActivationMode::Elu => each!(x => s.select(s.gt(x, zero), x, s.mul(alpha, expm1_negative(s, x)))),
            ActivationMode::Clamp => each!(x => s.max(s.min(x, beta), alpha)),
            // PASTHRU; other modes no solver accepts.
            _ => {}
        }
    }
}

impl Simple {
    /// The activation of one vector. Made to be called with a variant that is known at compile time or
    /// looked at outside of the loop.
    #[inline(always)]
    pub(crate) fn apply<S: Simd>(self, s: S, x: S::V) -> S::V {
        let zero = s.splat(0.0);
        match self {
            Simple::Identity => x,
            Simple::Slope(slope) => s.select(s.gt(x, zero), x, s.mul(s.splat(slope), x)),
            Simple::Clip(top) => s.min(s.max(x, zero), s.splat(top)),
        }
    }
}

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two parts, the first with so few bits that its products with exponents are exact.
const LN2: [f32; 2] = [355.0 / 512.0, -2.121_944_4e-4];

/// `e^r − 1` for |r| ≤ ½ ln 2 (a little more does not hurt).
#[inline(always)]
fn expm1_reduced<S: Simd>(s: S, r: S::V) -> S::V {
    const C: [f32; 5] = [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5];
    let mut p = s.splat(1.987_569_1e-4);
    for c in C {
        p = s.fma(p, r, s.splat(c));
    }
    s.fma(s.mul(r, r), p, r)
}

/// `x = n · ln 2 + r`: (n, r).
#[inline(always)]
fn reduce<S: Simd>(s: S, x: S::V) -> (S::V, S::V) {
    let n = s.round(s.mul(x, s.splat(LOG2_E)));
    let r = s.fma(n, s.splat(-LN2[0]), x);
    (n, s.fma(n, s.splat(-LN2[1]), r))
}

/// `e^(x + tail)` for a tail that is small beside 1.
#[inline(always)]
fn exp_with_tail<S: Simd>(s: S, x: S::V, tail: S::V) -> S::V {
    // The second operand of `min` and `max` is what NaN gives.
    let x = s.max(s.splat(-105.0), s.min(s.splat(90.0), x));
    let (n, r) = reduce(s, x);
    let e = s.add(expm1_reduced(s, s.add(r, tail)), s.splat(1.0));
    // In two steps, because the exponent may leave the range of f32 where the result does not.
    let half = s.round(s.mul(n, s.splat(0.5)));
    s.mul(s.mul(e, s.pow2(half)), s.pow2(s.sub(n, half)))
}

/// `e^x`
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    exp_with_tail(s, x, s.splat(0.0))
}

/// `e^x − 1` for x ≤ 0, with full relative precision near 0.
#[inline(always)]
fn expm1_negative<S: Simd>(s: S, x: S::V) -> S::V {
    let clamped = s.max(s.splat(-30.0), s.min(s.splat(0.0), x));
    let (n, r) = reduce(s, clamped);
    let scale = s.pow2(n);
    let result = s.fma(scale, expm1_reduced(s, r), s.sub(scale, s.splat(1.0)));
    // Keeps NaN, and the sign of −0.
    s.select(s.gt(s.splat(0.0), x), result, x)
}

/// `1 / (1 + e^−x)`
#[inline(always)]
fn logistic<S: Simd>(s: S, x: S::V) -> S::V {
    let one = s.splat(1.0);
    let e = exp(s, s.sub(s.splat(0.0), s.abs(x)));
    let numerator = s.select(s.gt(x, s.splat(0.0)), one, e);
    s.div(numerator, s.add(one, e))
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
    let e = exp(s, s.add(magnitude, magnitude));
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
fn softplus<S: Simd>(s: S, x: S::V) -> S::V {
    let tail = log1p_unit(s, exp(s, s.sub(s.splat(0.0), s.abs(x))));
    let result = s.add(s.max(x, s.splat(0.0)), tail);
    s.select(s.is_nan(x), x, result)
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
fn power<S: Simd>(s: S, base: S::V, exponent: f32) -> S::V {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Isa, Kernel};

    struct Apply<'a>(Activation, &'a mut [f32]);
    impl Kernel for Apply<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            assert_eq!(self.1.len() % S::LANES, 0);
            // SAFETY: the slice has this many whole vectors.
            unsafe { self.0.apply(s, self.1.as_mut_ptr(), self.1.len() / S::LANES) }
        }
    }

    fn expected(mode: ActivationMode, p: &ActivationParams, x: f64) -> f64 {
        match mode {
            ActivationMode::Pasthru => x,
            ActivationMode::Logistic => 1.0 / (1.0 + (-x).exp()),
            ActivationMode::Tanh => p.beta * (p.alpha * x).tanh(),
            ActivationMode::Relu => x.max(0.0),
            ActivationMode::SoftRelu if x.is_nan() => x,
            ActivationMode::SoftRelu => x.max(0.0) + (-x.abs()).exp().ln_1p(),
            ActivationMode::Abs => x.abs(),
            // The base is rounded to f32 once, which the bound on the power does not include.
            ActivationMode::Power => {
                let base = f64::from((p.alpha + p.beta * x) as f32);
                if base <= f64::from(1e-6f32) { 0.0 } else { base.powf(p.gamma) }
            }
            ActivationMode::ClippedRelu => p.alpha.min(x.max(0.0)),
            ActivationMode::LeakyRelu => {
                if x > 0.0 {
                    x
                } else {
                    p.alpha * x
                }
            }
            ActivationMode::Elu => {
                if x > 0.0 {
                    x
                } else {
                    p.alpha * x.exp_m1()
                }
            }
            ActivationMode::Clamp => p.alpha.max(p.beta.min(x)),
            _ => unreachable!(),
        }
    }

    /// The distance in units in the last place of `exact`'s f32 neighbourhood.
    fn ulps(got: f32, exact: f64) -> f64 {
        let rounded = exact as f32;
        if got == rounded || got.is_nan() && exact.is_nan() {
            return 0.0;
        }
        if !got.is_finite() || !rounded.is_finite() {
            let edge = f64::from(f32::MAX) * (1.0 - 1e-6);
            let near =
                exact.abs() > edge && f64::from(got).abs() > edge && (f64::from(got) > 0.0) == (exact > 0.0);
            return if near { 0.0 } else { f64::INFINITY };
        }
        let exponent = (exact.abs().log2().floor()).max(-126.0);
        (f64::from(got) - exact).abs() / 2f64.powf(exponent - 23.0)
    }

    fn inputs() -> Vec<f32> {
        let mut x = vec![0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 100.0, -100.0, 1e-40, -1e-40];
        x.extend([f32::MAX, f32::MIN, f32::MIN_POSITIVE, 88.72, 88.73, -103.9, -104.1, -87.4, 1e30, -1e30]);
        // Every exponent and sign, with mantissas spread over the range.
        // Signalling NaNs are quieted: Rust does not promise what becomes of them, and on some processors
        // a compiled `a > b ? a : b` passes them on.
        let quiet = |x: f32| if x.is_nan() { f32::NAN } else { x };
        x.extend((0..1u64 << 32).step_by(99_991).map(|b| quiet(f32::from_bits(b as u32))));
        x.extend((-60_000..60_000).map(|i| i as f32 * 0.001_7));
        x.resize(x.len().next_multiple_of(16), 0.5);
        x
    }

    #[test]
    fn every_mode_is_within_four_ulps_on_every_set() {
        let x = inputs();
        let params = [
            ActivationParams::new(1.0, 1.0, 1.0),
            ActivationParams::new(0.5, 2.0, 3.0),
            ActivationParams::new(0.25, -1.0, -0.5),
            ActivationParams::new(0.0, 1.0, f64::from(0.37f32)),
            ActivationParams::new(1.0, 0.5, 17.5),
            ActivationParams::new(2.0, 4.0, 0.0),
        ];
        for isa in Isa::available() {
            for mode in ActivationMode::ALL {
                let mut worst = (0.0, 0.0, 0.0);
                for p in &params {
                    let mut y = x.clone();
                    isa.run(Apply(Activation::new(mode, p, DataType::Float), &mut y));
                    for (&x, &y) in x.iter().zip(&y) {
                        let exact = expected(mode, p, x.into());
                        // tanh(α·x) is taken at the rounded product.
                        let exact = match mode {
                            ActivationMode::Tanh => p.beta * f64::from(p.alpha as f32 * x).tanh(),
                            ActivationMode::Power if x.is_nan() => f64::NAN,
                            _ => exact,
                        };
                        let error = ulps(y, exact);
                        if error > worst.0 {
                            worst = (error, x, y);
                        }
                    }
                }
                println!("{mode} on {}: {} ulp at {}", isa.name(), worst.0, worst.1);
                assert!(worst.0 <= 4.0, "{mode} on {}: {worst:?}", isa.name());
            }
        }
    }

    #[test]
    fn results_do_not_depend_on_the_lane() {
        for isa in Isa::available() {
            for mode in ActivationMode::ALL {
                let activation =
                    Activation::new(mode, &ActivationParams::new(0.5, 1.5, 2.5), DataType::Float);
                for x in [0.1f32, -3.7, 42.0, 1e-3, -0.0] {
                    let mut y = [x; 64];
                    isa.run(Apply(activation, &mut y));
                    assert!(y.iter().all(|v| v.to_bits() == y[0].to_bits()));
                }
            }
        }
    }

    #[test]
    fn nan_gives_what_the_module_says() {
        let p = ActivationParams::new(-2.0, 3.0, 2.0);
        for isa in Isa::available() {
            let of_nan = |mode| {
                let mut y = [f32::NAN; 16];
                isa.run(Apply(Activation::new(mode, &p, DataType::Float), &mut y));
                y[0]
            };
            assert_eq!(of_nan(ActivationMode::Relu), 0.0);
            assert_eq!(of_nan(ActivationMode::Clamp), 3.0);
            assert_eq!(of_nan(ActivationMode::ClippedRelu), -2.0);
            for mode in ActivationMode::ALL {
                use ActivationMode::*;
                assert_eq!(of_nan(mode).is_nan(), !matches!(mode, Relu | Clamp | ClippedRelu), "{mode}");
            }
        }
    }

    #[test]
    fn simple_forms_are_the_same_function() {
        struct Both<'a>(Activation, Simple, &'a [f32]);
        impl Kernel for Both<'_> {
            type Output = ();
            #[inline(always)]
            fn run<S: Simd>(self, s: S) {
                for chunk in self.2.chunks_exact(S::LANES) {
                    let mut a = [0.0; 16];
                    let mut b = [0.0; 16];
                    // SAFETY: the chunk and the arrays have a whole vector.
                    unsafe {
                        let x = s.load(chunk.as_ptr());
                        s.store(a.as_mut_ptr(), self.1.apply(s, x));
                        s.store(b.as_mut_ptr(), x);
                        self.0.apply(s, b.as_mut_ptr(), 1);
                    }
                    assert_eq!(a.map(f32::to_bits), b.map(f32::to_bits));
                }
            }
        }
        let x = inputs();
        for isa in Isa::available() {
            for mode in ActivationMode::ALL {
                let activation =
                    Activation::new(mode, &ActivationParams::new(0.75, 6.0, 1.0), DataType::Float);
                if let Some(simple) = activation.simple() {
                    isa.run(Both(activation, simple, &x[..4096]));
                }
            }
        }
    }
}
