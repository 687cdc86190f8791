//! The check of results against the reference solver.

use std::fmt;

use fuseplan::{
    CompileOptions, DataType, Error, FindMode, Handle, MathMode, TensorDescriptor, error::BackendError,
};

use crate::chain::{Chain, Operands, Plan, Written};
use crate::element::Scalar;
use crate::memory;
use crate::output::general;

/// The solver that results are compared with: plain loops, f64 accumulation.
pub(crate) const REFERENCE: &str = "cpu.reference.v1";

/// MIOpenDriver's greatest root-mean-square error that passes. TF32 has as many digits as f16.
pub(crate) fn tolerance(data_type: DataType, math: MathMode) -> f64 {
    let digits = match (data_type, math) {
        (DataType::Float, MathMode::AllowTf32) => DataType::Half,
        (data_type, _) => data_type,
    };
    80.0 * digits.epsilon()
}

/// What an execution of the reference solver leaves behind.
#[derive(Debug)]
pub(crate) struct Results<T> {
    pub(crate) output: Vec<T>,
    /// What operators write besides.
    pub(crate) written: Vec<Vec<f32>>,
    /// The solver that it was.
    pub(crate) solver: &'static str,
}

/// What the reference solver makes of `input`; of a plan for training, which it does not take, the CPU's solver, which
/// computes in f64 throughout as well.
pub(crate) fn reference<T: Scalar>(
    chain: &Chain,
    input: &[T],
    operands: &Operands<T>,
) -> Result<Results<T>, Error> {
    let (plan, handle) = (Plan::of(chain)?, Handle::cpu());
    let options = match plan.plan.problem().is_training() {
        true => CompileOptions::default().with_find(FindMode::Fast),
        false => CompileOptions::default().with_solver(REFERENCE),
    };
    let mut written = Written::new(&plan.plan, &handle)?;
    let ready = plan.compile(&handle, &options, &operands.0, &mut written.0)?;
    let mut output = poisoned(plan.plan.output())?;
    ready.run(input.into(), (&mut output).into())?;
    let solver = ready.compiled.info().solver;
    drop(ready);
    Ok(Results { output, written: written.values()?, solver })
}

/// Memory for a tensor, filled with what no correct result holds.
///
/// # Errors
/// There is no such memory.
pub(crate) fn poisoned<T: Scalar>(descriptor: &TensorDescriptor) -> Result<Vec<T>, BackendError> {
    memory::filled(descriptor.span(), || T::NAN)
}

/// How far a result is from the reference, and how far it may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Verdict {
    /// The root of the mean square of the differences, over the largest magnitude of both.
    pub(crate) error: f64,
    pub(crate) tolerance: f64,
}

impl Verdict {
    /// Compares results element by element.
    pub(crate) fn new<T: Scalar>(reference: &[T], result: &[T], tolerance: f64) -> Self {
        Verdict { error: rms_error(reference, result), tolerance }
    }

    /// Whether the error is a number that is not above the tolerance.
    pub(crate) fn passes(&self) -> bool {
        self.error.is_finite() && self.error <= self.tolerance
    }
}

/// MIOpenDriver's line.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (error, tolerance) = (general(self.error), general(self.tolerance));
        if self.passes() {
            write!(f, "Forward Activation Verifies on CPU and GPU ({error} < {tolerance})")
        } else {
            write!(f, "Forward Activation FAILED: {error} > {tolerance}")
        }
    }
}

/// MIOpen's `rms_range`: `sqrt(Σ (a − b)²) / (sqrt(n) · max(|a|, |b|))`. Elements that overflow to the same
/// infinity agree, and count for nothing else. Not a number when another element of either is not finite, or
/// when the lengths differ.
fn rms_error<T: Scalar>(reference: &[T], result: &[T]) -> f64 {
    if reference.len() != result.len() {
        return f64::NAN;
    }
    let (mut square, mut largest) = (0.0, f64::MIN_POSITIVE);
    for (a, b) in reference.iter().zip(result).map(|(a, b)| (a.to_f64(), b.to_f64())) {
        if a.is_infinite() && a == b {
            continue;
        }
        if !(a.is_finite() && b.is_finite()) {
            return f64::NAN;
        }
        square += (a - b) * (a - b);
        largest = largest.max(a.abs()).max(b.abs());
    }
    square.sqrt() / ((reference.len() as f64).sqrt() * largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_miopens_formula() {
        assert_eq!(rms_error(&[1.0f32, 2.0, 4.0, 0.0], &[1.0, 2.0, 4.0, 0.0]), 0.0);
        // sqrt(0.25) / (sqrt(4) · 4)
        assert_eq!(rms_error(&[1.0f32, 2.0, 4.0, 0.5], &[1.0, 2.0, 4.0, 0.0]), 0.0625);
        assert_eq!(rms_error(&[0.0f32; 3], &[0.0; 3]), 0.0);
        assert_eq!(rms_error(&[0.0f32, 0.0], &[0.0, -2.0]), 1.0 / 2f64.sqrt());
    }

    #[test]
    fn one_wrong_element_fails() {
        let right = vec![1.0f32; 1000];
        let mut wrong = right.clone();
        assert!(Verdict::new(&right, &wrong, tolerance(DataType::Float, MathMode::Precise)).passes());
        wrong[999] = 1.5;
        let verdict = Verdict::new(&right, &wrong, tolerance(DataType::Float, MathMode::Precise));
        assert!(!verdict.passes());
        assert_eq!(verdict.to_string(), "Forward Activation FAILED: 0.0105409 > 9.53674e-06");
    }

    #[test]
    fn the_same_overflow_agrees() {
        let tolerance = tolerance(DataType::Half, MathMode::Precise);
        assert!(Verdict::new(&[1.0, f32::INFINITY], &[1.0, f32::INFINITY], tolerance).passes());
        assert!(!Verdict::new(&[1.0, f32::INFINITY], &[2.0, f32::INFINITY], tolerance).passes());
    }

    #[test]
    fn what_is_not_a_number_fails() {
        assert!(!Verdict::new(&[1.0, f32::NAN], &[1.0, f32::NAN], f64::MAX).passes());
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(!Verdict::new(&[1.0, 1.0], &[1.0, bad], f64::MAX).passes());
            assert!(!Verdict::new(&[1.0, bad], &[1.0, 1.0], f64::MAX).passes());
            assert!(!Verdict::new(&[1.0, -bad], &[1.0, bad], f64::MAX).passes());
        }
        assert!(!Verdict::new(&[1.0f32], &[1.0, 1.0], f64::MAX).passes());
    }

    #[test]
    fn tolerances_are_miopendrivers() {
        assert_eq!(general(tolerance(DataType::Float, MathMode::Precise)), "9.53674e-06");
        assert_eq!(general(tolerance(DataType::Half, MathMode::Precise)), "0.078125");
        assert_eq!(general(tolerance(DataType::BFloat16, MathMode::Precise)), "0.625");
        assert_eq!(general(tolerance(DataType::Float, MathMode::AllowTf32)), "0.078125");
        assert_eq!(general(tolerance(DataType::BFloat16, MathMode::AllowTf32)), "0.625");
    }
}
