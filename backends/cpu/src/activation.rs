//! Activations on vectors.
//!
//! Errors are at most 4 units in the last place of f32, of GELU 5; of LOGISTIC, SILU and the GELUs 2⁻¹³⁴ where that is more. Every lane
//! gets the same result wherever it stands.
//!
//! NaN: where MIOpen's formula is written with `min` and `max` (CLIPPEDRELU, CLAMP) a NaN gives the other
//! operand, as C's `fmin` and `fmax` do; RELU(NaN) is 0; everything else hands NaN on. Where PyTorch multiplies x by what
//! goes to 0, −∞ gives NaN.

use fuseplan_api::{ActivationMode, ActivationParams, DataType};

use crate::elementary::{expm1_negative, gelu, gelu_tanh, logistic, mish, power, silu, softplus, tanh};
use crate::isa::{Kernel, Simd};

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
            ActivationMode::ClippedRelu
            | ActivationMode::Logistic
            | ActivationMode::Tanh
            | ActivationMode::SoftRelu
            | ActivationMode::Abs
            | ActivationMode::Power
            | ActivationMode::Elu
            | ActivationMode::Clamp
            | ActivationMode::Silu
            | ActivationMode::HardSwish
            | ActivationMode::HardSigmoid
            | ActivationMode::Gelu
            | ActivationMode::GeluTanh
            | ActivationMode::Mish => None,
        }
    }

    pub(crate) fn is_hard_swish(&self) -> bool {
        self.mode == ActivationMode::HardSwish
    }

    /// Applies the activation to `vectors` whole vectors at `p`, in place.
    ///
    /// # Safety
    /// `p` is readable and writable for them.
    #[inline(always)]
    pub(crate) unsafe fn apply<S: Simd>(&self, s: S, p: *mut f32, vectors: usize) {
        let Some(simple) = self.simple() else {
            // SAFETY: `s` is the proof that the CPU has the set; the caller answers for the vectors.
            return unsafe {
                activate::<S>(
                    self,
                    Vectors { first: p, pitch: S::LANES, count: vectors, run_pitch: 0, runs: 1 },
                )
            };
        };
        macro_rules! each {
            ($simple:expr) => {
                for i in 0..vectors {
                    // SAFETY: the caller says that `vectors` whole vectors at `p` are readable and writable.
                    unsafe {
                        let at = p.add(i * S::LANES);
                        s.store(at, $simple.apply(s, s.load(at)));
                    }
                }
            };
        }
        match simple {
            Simple::Identity => {}
            Simple::Slope(slope) => each!(Simple::Slope(slope)),
            Simple::Clip(top) => each!(Simple::Clip(top)),
        }
    }
}

/// Runs of whole vectors in memory. Distances are in floats.
#[derive(Clone, Copy)]
pub(crate) struct Vectors {
    pub(crate) first: *mut f32,
    /// The distance from a vector of a run to the next, and how many there are.
    pub(crate) pitch: usize,
    pub(crate) count: usize,
    /// The distance from a run to the next, and how many there are.
    pub(crate) run_pitch: usize,
    pub(crate) runs: usize,
}

/// Applies an activation to vectors in place.
///
/// # Safety
/// The CPU has the instruction set; the vectors are readable and writable.
pub(crate) unsafe fn activate<S: Simd>(activation: &Activation, vectors: Vectors) {
    // SAFETY: the caller says that the CPU has the instruction set, and answers for the vectors.
    unsafe { S::enter(Each { activation, vectors }) }
}

pub(crate) type ActivateFn = unsafe fn(&Activation, Vectors);

/// The activation of whole vectors in memory: one function for each instruction set. What takes more than a few instructions
/// would make kernels many times as long, all of them together, if each had a copy of it.
struct Each<'a> {
    activation: &'a Activation,
    vectors: Vectors,
}

impl Kernel for Each<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Each { activation: of, vectors } = self;
        let (alpha, beta) = (s.splat(of.alpha), s.splat(of.beta));
        let zero = s.splat(0.0);
        // The mode is looked at once for all, not once for each vector.
        macro_rules! each {
            ($x:ident => $y:expr) => {
                for run in 0..vectors.runs {
                    let mut at = vectors.first.wrapping_add(run * vectors.run_pitch);
                    for _ in 0..vectors.count {
                        // SAFETY: `activate`'s caller says that the vectors are readable and writable.
                        unsafe {
                            let $x = s.load(at);
                            s.store(at, $y);
                        }
                        at = at.wrapping_add(vectors.pitch);
                    }
                }
            };
        }
        match of.mode {
            ActivationMode::Logistic => each!(x => logistic(s, x)),
            ActivationMode::Tanh => each!(x => s.mul(beta, tanh(s, s.mul(alpha, x)))),
            ActivationMode::Relu => each!(x => s.max(x, zero)),
            ActivationMode::SoftRelu => each!(x => softplus(s, x)),
            ActivationMode::Abs => each!(x => s.abs(x)),
            ActivationMode::Power => {
                let threshold = s.splat(of.threshold);
                each!(x => {
                    let base = s.fma(beta, x, alpha);
                    let result = power(s, base, of.gamma);
                    let result = s.select(s.gt(base, threshold), result, zero);
                    s.select(s.is_nan(base), base, result)
                });
            }
            ActivationMode::ClippedRelu => each!(x => s.min(s.max(x, zero), alpha)),
            ActivationMode::LeakyRelu => each!(x => s.select(s.gt(x, zero), x, s.mul(alpha, x))),
            ActivationMode::Elu => each!(x => s.select(s.gt(x, zero), x, s.mul(alpha, expm1_negative(s, x)))),
            ActivationMode::Clamp => each!(x => s.max(s.min(x, beta), alpha)),
            ActivationMode::Silu => each!(x => silu(s, x)),
            ActivationMode::HardSwish => each!(x => hard_swish(s, x)),
            ActivationMode::HardSigmoid => each!(x => hard_sigmoid(s, x)),
            ActivationMode::Gelu => each!(x => gelu(s, x)),
            ActivationMode::GeluTanh => each!(x => gelu_tanh(s, x)),
            ActivationMode::Mish => each!(x => mish(s, x)),
            ActivationMode::Pasthru => {}
        }
    }
}

/// `x > 0 ? x : slope · x`
#[inline(always)]
pub(crate) fn prelu<S: Simd>(s: S, x: S::V, slope: S::V) -> S::V {
    s.select(s.gt(x, s.splat(0.0)), x, s.mul(slope, x))
}

#[inline(always)]
fn hard_sigmoid<S: Simd>(s: S, x: S::V) -> S::V {
    // NaN stays NaN: the second operand of `min` and `max` is what NaN gives.
    let clipped = s.min(s.splat(6.0), s.max(s.splat(0.0), s.add(x, s.splat(3.0))));
    s.mul(clipped, s.splat(1.0 / 6.0))
}

#[inline(always)]
pub(crate) fn hard_swish<S: Simd>(s: S, x: S::V) -> S::V {
    s.mul(x, hard_sigmoid(s, x))
}

impl Simple {
    /// The activation of one vector. Made to be called with a variant that is known at compile time or
    /// looked at outside of the loop.
    #[inline(always)]
    pub(crate) fn apply<S: Simd>(self, s: S, x: S::V) -> S::V {
        let zero = s.splat(0.0);
        match self {
            Simple::Identity => x,
            Simple::Slope(slope) => prelu(s, x, s.splat(slope)),
            Simple::Clip(top) => s.min(s.max(x, zero), s.splat(top)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

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

    /// The definition in f64, but that the base of POWER is rounded to f32 once, which the bound on the power does not
    /// include, and so is the argument of TANH.
    fn expected(mode: ActivationMode, p: &ActivationParams, x: f32) -> f64 {
        let of = |p, x| mode.with(&p).forward(DataType::Float, x);
        match mode {
            // MIOpen's NaN is the smaller base.
            ActivationMode::Power if x.is_nan() => f64::NAN,
            ActivationMode::Power => {
                let base = f64::from((p.alpha + p.beta * f64::from(x)) as f32);
                of(ActivationParams::new(0.0, 1.0, p.gamma), base)
            }
            ActivationMode::Tanh => {
                of(ActivationParams::new(1.0, p.beta, 0.0), f64::from(p.alpha as f32 * x))
            }
            _ => of(*p, x.into()),
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
        // Where GELU is worst.
        x.extend((0..200_000).map(|i| i as f32 * 5e-6 - 2.0));
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
    fn every_mode_is_as_exact_as_the_module_says_on_every_set() {
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
                        let exact = expected(mode, p, x);
                        let is_scaled = matches!(
                            mode,
                            ActivationMode::Logistic
                                | ActivationMode::Silu
                                | ActivationMode::Gelu
                                | ActivationMode::GeluTanh
                        );
                        let is_tiny = (f64::from(y) - exact).abs() <= 2f64.powi(-134);
                        let error = if is_scaled && is_tiny { 0.0 } else { ulps(y, exact) };
                        if error > worst.0 {
                            worst = (error, x, y);
                        }
                    }
                }
                println!("{mode} on {}: {} ulp at {}", isa.name(), worst.0, worst.1);
                let most = if mode == ActivationMode::Gelu { 5.0 } else { 4.0 };
                assert!(worst.0 <= most, "{mode} on {}: {worst:?}", isa.name());
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
