//! One configuration: fused and unfused, verified and timed.

use std::time::Duration;

use fuseplan::{CompileOptions, Error, Handle, error::BackendError};

use super::field::Layer;
use super::lists::Case;
use super::report::Setting;
use crate::chain::{Chain, Operands, Plan, Written};
use crate::element::{Random, Scalar};
use crate::measure::{self, Floor};
use crate::memory;
use crate::sequence::{Rotation, Sequence};
use crate::verify::{self, Verdict};

/// What a configuration gave.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) label: String,
    /// The command that runs the configuration alone.
    pub(crate) command: String,
    /// The solver of the fused plan.
    pub(crate) solver: String,
    /// The solvers of the unfused plans, in order.
    pub(crate) unfused_solvers: Vec<String>,
    /// Seconds of the fused plan, a median.
    pub(crate) fused: f64,
    /// Seconds of the unfused plans together, a median.
    pub(crate) unfused: f64,
    /// The layer that it is, of the field list.
    pub(crate) layer: Option<&'static Layer>,
    /// Number of images.
    pub(crate) batch: usize,
    /// How often each was timed.
    pub(crate) rounds: usize,
    /// How many sets of operands took turns.
    pub(crate) sets: usize,
    /// What the device needs at least; not known where it cannot measure its limits.
    pub(crate) floor: Option<f64>,
    pub(crate) flops: f64,
    pub(crate) bytes: f64,
    pub(crate) fused_verdict: Verdict,
    pub(crate) unfused_verdict: Verdict,
}

impl Outcome {
    /// The unfused time over the fused time.
    pub(crate) fn speed_up(&self) -> f64 {
        self.unfused / self.fused
    }

    /// The floor over the fused time.
    pub(crate) fn of_floor(&self) -> Option<f64> {
        self.floor.map(|floor| floor / self.fused)
    }

    /// Whether both results are right.
    pub(crate) fn passes(&self) -> bool {
        self.fused_verdict.passes() && self.unfused_verdict.passes()
    }
}

/// What an outcome is called, and how it is come by again.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) label: String,
    /// The command that runs it alone.
    pub(crate) command: String,
    /// The layer that it is, of the field list.
    pub(crate) layer: Option<&'static Layer>,
}

/// Runs a configuration.
pub(crate) fn run<T: Scalar>(
    case: &Case,
    setting: &Setting,
    handle: &Handle,
    budget: Duration,
    seed: u64,
) -> Result<Outcome, Error> {
    let subject = Subject { label: case.label(), command: case.command(setting), layer: case.layer() };
    measure::<T>(&case.chain(setting)?, subject, handle, budget, seed)
}

/// Runs a chain as one plan, and as one plan for each operator.
pub(crate) fn measure<T: Scalar>(
    chain: &Chain,
    subject: Subject,
    handle: &Handle,
    budget: Duration,
    seed: u64,
) -> Result<Outcome, Error> {
    let plan = Plan::of(chain)?;
    // Data of both signs, so that the activation cuts.
    let mut random = Random::new(seed);
    let input: Vec<T> = random.numbers(chain.input.span(), -0.5)?;
    let operands = Operands::random(&plan.plan, &mut random, -0.5)?;

    let options = CompileOptions::default();
    let compiled = plan.plan.compile(handle)?;
    let problem = compiled.problem();
    let sets = Rotation::<T>::sets(handle, problem.bytes());
    let mut written = Written::sets(&plan.plan, handle, 2 * sets)?;
    let (for_fused, for_unfused) = written.split_at_mut(sets);
    let mut fused = Rotation::new(for_fused, |written| {
        Sequence::fused(chain, handle, &options, &input, &operands, written)
    })?;
    let mut unfused = Rotation::new(for_unfused, |written| {
        Sequence::new(chain, chain.steps.chunks(1), handle, &options, &input, &operands, written)
    })?;
    fused.run()?;
    unfused.run()?;

    let samples = Samples::new(chain, &input, &operands)?;
    let fused_verdict = samples.compare(&fused.first().output()?)?;
    let unfused_verdict = samples.compare(&unfused.first().output()?)?;

    let unfused_solvers = unfused.first().compiled().map(|plan| plan.info().solver.to_string()).collect();
    let times = measure::interleaved(handle, budget, &mut [&mut || fused.run(), &mut || unfused.run()])?;
    let peaks = handle.peaks(chain.input.data_type()).ok();
    Ok(Outcome {
        label: subject.label,
        command: subject.command,
        solver: compiled.info().solver.to_string(),
        unfused_solvers,
        fused: measure::median(&times[0]) / sets as f64,
        unfused: measure::median(&times[1]) / sets as f64,
        layer: subject.layer,
        batch: samples.batch,
        rounds: times[0].len(),
        sets,
        floor: peaks.map(|peaks| Floor::new(problem, &peaks).seconds()),
        flops: problem.flops(),
        bytes: problem.bytes(),
        fused_verdict,
        unfused_verdict,
    })
}

/// The first and the last image of the batch as the reference computes them: the plain loops of the
/// reference would take minutes for a whole batch.
struct Samples<T> {
    batch: usize,
    reference: Vec<T>,
    tolerance: f64,
}

impl<T: Scalar> Samples<T> {
    fn new(chain: &Chain, input: &[T], operands: &Operands<T>) -> Result<Self, Error> {
        let batch = chain.input.lens()[0];
        let images = images(input, batch)?;
        let mut lens = chain.input.lens().to_vec();
        lens[0] = batch.min(2);
        let sample = Chain { input: chain.input.like(&lens)?, ..chain.clone() };
        let operands = operands.with_residual(chain, |residual| self::images(residual, batch))?;
        let reference = verify::reference(&sample, &images, &operands)?.output;
        Ok(Samples { batch, reference, tolerance: verify::tolerance(chain.input.data_type(), chain.math) })
    }

    fn compare(&self, result: &[T]) -> Result<Verdict, BackendError> {
        Ok(Verdict::new(&self.reference, &images(result, self.batch)?, self.tolerance))
    }
}

/// The first and the last image of a packed tensor; the only one of a batch of 1.
fn images<T: Scalar>(data: &[T], batch: usize) -> Result<Vec<T>, BackendError> {
    let image = data.len() / batch;
    let last = if batch == 1 { data.len() } else { data.len() - image };
    let mut images = memory::room(image + data.len() - last)?;
    images.extend_from_slice(&data[..image]);
    images.extend_from_slice(&data[last..]);
    Ok(images)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::lists::List;
    use crate::element::{Math, Precision};
    use fuseplan::TensorLayout;

    #[test]
    fn the_first_and_the_last_image_are_taken() {
        assert_eq!(images(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], 3).unwrap(), [1.0, 2.0, 5.0, 6.0]);
        assert_eq!(images(&[1.0f32, 2.0], 2).unwrap(), [1.0, 2.0]);
        assert_eq!(images(&[1.0f32, 2.0], 1).unwrap(), [1.0, 2.0]);
    }

    #[test]
    fn fused_and_unfused_are_verified_in_every_type_and_layout() {
        let handle = Handle::cpu();
        let layer = |line| Case::Field(Box::leak(Layer::parse(line).unwrap().into()));
        let small = [
            Case::Cba([5, 7, 6, 3, 1, 2]),
            Case::Na([5, 7]),
            layer("net\tfit\t1\t2\t6\t7x5\t8\t3x1\t2x1\t1x0\t1x1\t2\tbn\trelu\tyes"),
            layer("net\tfit\t1\t3\t3\t4x7x5\t2\t3x3x3\t1x1x1\t0x1x1\t1x1x1\t1\tbias\tsilu\tno"),
        ];
        for (case, layout) in
            small.iter().flat_map(|case| TensorLayout::of_rank(4).iter().map(move |l| (case, *l)))
        {
            let setting = |precision| Setting {
                list: List::Cba,
                precision,
                layout,
                math: Math::Precise,
                batch: 3,
                device: handle.device_info().clone(),
            };
            let budget = Duration::from_millis(1);
            let check = |outcome: Result<Outcome, Error>| {
                let outcome = outcome.unwrap();
                assert!(outcome.passes(), "{outcome:?}");
                assert!(outcome.fused > 0.0 && outcome.unfused > 0.0 && outcome.rounds > 0, "{outcome:?}");
            };
            check(run::<f32>(case, &setting(Precision::Fp32), &handle, budget, 1));
            check(run::<half::f16>(case, &setting(Precision::Fp16), &handle, budget, 1));
            check(run::<half::bf16>(case, &setting(Precision::Bfp16), &handle, budget, 1));
        }
    }

    #[test]
    fn a_wrong_last_image_is_found() {
        let chain = Case::Na([2, 3])
            .chain(&Setting {
                list: List::Na,
                precision: Precision::Fp32,
                layout: TensorLayout::Nchw,
                math: Math::Precise,
                batch: 4,
                device: Handle::cpu().device_info().clone(),
            })
            .unwrap();
        let mut random = Random::new(1);
        let input: Vec<f32> = random.numbers(chain.input.span(), -0.5).unwrap();
        let operands = Operands::random(&Plan::of(&chain).unwrap().plan, &mut random, -0.5).unwrap();
        let samples = Samples::new(&chain, &input, &operands).unwrap();
        let mut result = verify::reference(&chain, &input, &operands).unwrap().output;
        assert!(samples.compare(&result).unwrap().passes());
        *result.last_mut().unwrap() += 1.0;
        assert!(!samples.compare(&result).unwrap().passes());
    }
}
