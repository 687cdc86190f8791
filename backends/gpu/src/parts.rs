//! Problems whose tensors need offsets of more than 32 bits, of which a kernel computes some images after others.

use std::array;
use std::borrow::Cow;
use std::sync::Arc;

use fuseplan_api::{
    Accuracy, Algorithm, Binary, BuildError, Candidate, Configuration, Constraint, Device, DeviceInfo,
    Estimate, Executable, ExecutableInfo, Op, OpArgs, Preference, Problem, RawStream, RunArgs, RunError,
    Solver, TensorDescriptor,
};

use crate::constraint::MAX_OPS;
use crate::volume::is_wide;
use crate::{Kernel, Planner};

/// A solver whose kernels have offsets of 32 bits, for which [`SPAN`](crate::SPAN) and [`OPERATOR_COUNT`](crate::OPERATOR_COUNT)
/// stand among its constraints.
#[derive(Debug)]
pub struct InParts<S>(pub S);

/// The tensor of so many of its images.
fn images_of(tensor: &TensorDescriptor, images: usize) -> Option<TensorDescriptor> {
    let lens = [&[images], &tensor.lens()[1..]].concat();
    TensorDescriptor::new(tensor.data_type(), &lens, tensor.strides()?).ok()
}

/// What an operator reads of as many images as the output has, if it reads any.
fn of_images<'a>(op: &'a mut Op, output: &TensorDescriptor) -> Option<&'a mut TensorDescriptor> {
    if let Op::BiasForward { bias: own } | Op::PReluForward { slope: own } = op {
        return (own.lens()[0] == output.lens()[0]).then_some(own);
    }
    None
}

/// The same problem of so many images.
fn of_so_many(problem: &Problem, images: usize) -> Option<Problem> {
    let mut part = problem.clone();
    part.input = images_of(&problem.input, images)?;
    part.output = images_of(&problem.output, images)?;
    for op in &mut part.ops {
        if let Some(own) = of_images(op, &problem.output) {
            *own = images_of(own, images)?;
        }
    }
    Some(part)
}

/// The most parts: no memory has images for more, unless they have no divisor, and looking for one should not take long.
const MOST_PARTS: usize = 1 << 20;

/// The problem itself where offsets of 32 bits reach everything; else that of the most images for which they do and of which there
/// is a whole number of parts. `None` if an image is too large, or there are more than [`MOST_PARTS`].
pub(crate) fn part_of(problem: &Problem) -> Option<Cow<'_, Problem>> {
    if !is_wide(problem) {
        return Some(Cow::Borrowed(problem));
    }
    let images = problem.output.lens()[0];
    if is_wide(&of_so_many(problem, 1)?) {
        return None;
    }
    let counts = (2..=images.min(MOST_PARTS)).filter(|count| images.is_multiple_of(*count));
    let mut parts = counts.filter_map(|count| of_so_many(problem, images / count));
    parts.find(|part| !is_wide(part)).map(Cow::Owned)
}

impl<S> InParts<S> {
    /// What the solver computes at once. A constraint refuses problems that have no such part.
    fn part(problem: &Problem) -> Cow<'_, Problem> {
        part_of(problem).unwrap_or(Cow::Borrowed(problem))
    }
}

impl<S: Planner> Planner for InParts<S> {
    fn kernel_in(&self, problem: &Problem, arch: &str, configuration: &Configuration) -> Option<Kernel> {
        self.0.kernel_in(&Self::part(problem), arch, configuration)
    }

    fn kernel(&self, problem: &Problem, arch: &str) -> Kernel {
        self.0.kernel(&Self::part(problem), arch)
    }
}

impl<S: Planner> Solver for InParts<S> {
    fn id(&self) -> &'static str {
        self.0.id()
    }

    fn algorithm(&self) -> Algorithm {
        self.0.algorithm()
    }

    fn constraints(&self) -> &'static [Constraint] {
        self.0.constraints()
    }

    fn preferences(&self) -> &'static [Preference] {
        self.0.preferences()
    }

    fn reservation(&self, problem: &Problem, device: &DeviceInfo) -> Option<String> {
        self.0.reservation(&Self::part(problem), device)
    }

    fn accuracy(&self, problem: &Problem) -> Accuracy {
        self.0.accuracy(problem)
    }

    fn configurations(&self, problem: &Problem, target: &DeviceInfo) -> Vec<Candidate> {
        let part = Self::part(problem);
        let count = (problem.output.lens()[0] / part.output.lens()[0]) as f64;
        let mut all = self.0.configurations(&part, target);
        for candidate in &mut all {
            match &mut candidate.estimate {
                Estimate::Time { seconds: cost, .. } | Estimate::Cost { cost, .. } => *cost *= count,
                Estimate::Order => {}
            }
        }
        all
    }

    fn cache_key(
        &self,
        problem: &Problem,
        target: &DeviceInfo,
        configuration: &Configuration,
    ) -> Option<Vec<u8>> {
        self.0.cache_key(&Self::part(problem), target, configuration)
    }

    fn compile(
        &self,
        problem: &Problem,
        target: &DeviceInfo,
        configuration: &Configuration,
    ) -> Result<Binary, BuildError> {
        self.0.compile(&Self::part(problem), target, configuration)
    }

    fn load(
        &self,
        problem: &Problem,
        device: &Arc<dyn Device>,
        binary: &Binary,
    ) -> Result<Arc<dyn Executable>, BuildError> {
        let part = Self::part(problem);
        let executable = self.0.load(&part, device, binary)?;
        let count = problem.output.lens()[0] / part.output.lens()[0];
        if count == 1 {
            return Ok(executable);
        }
        let bytes = |tensor: &TensorDescriptor| {
            let image = tensor.strides().map_or(0, |strides| strides[0]);
            image * part.output.lens()[0] * tensor.data_type().size()
        };
        let of_op = |mut op: Op| of_images(&mut op, &problem.output).map_or(0, |own| bytes(own));
        let mut info = executable.info().clone();
        info.kernels *= count as u32;
        info.detail += &format!("; in {count} parts of {} images", part.output.lens()[0]);
        Ok(Arc::new(OneAfterAnother {
            info,
            count,
            input: bytes(&problem.input),
            output: bytes(&problem.output),
            ops: problem.ops.iter().cloned().map(of_op).collect(),
            part: executable,
        }))
    }
}

/// An executable that is run for one part after the other.
#[derive(Debug)]
struct OneAfterAnother {
    info: ExecutableInfo,
    part: Arc<dyn Executable>,
    count: usize,
    /// Bytes from a part to the next one, in the input, the output, and what each operator reads of all images.
    input: usize,
    output: usize,
    ops: Vec<usize>,
}

impl Executable for OneAfterAnother {
    fn info(&self) -> &ExecutableInfo {
        &self.info
    }

    unsafe fn run(&self, stream: RawStream, args: &RunArgs<'_>) -> Result<(), RunError> {
        let mut ops: [OpArgs; MAX_OPS] =
            array::from_fn(|i| args.ops.get(i).cloned().unwrap_or_else(OpArgs::default));
        for part in 0..self.count {
            let run = RunArgs {
                input: args.input.wrapping_byte_add(part * self.input),
                output: args.output.wrapping_byte_add(part * self.output),
                ops: &ops[..args.ops.len()],
                workspace: args.workspace,
            };
            // SAFETY: the part's operands lie within those that the caller promises, and launches on a stream follow one another.
            unsafe { self.part.run(stream, &run) }?;
            for (op, bytes) in ops.iter_mut().zip(&self.ops) {
                op.pointers[0] = op.pointers[0].wrapping_byte_add(*bytes);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fuseplan_api::{ConvolutionDescriptor, DataType, MathMode};

    /// A convolution with a residual, of images of 2^24 elements.
    fn problem(images: usize, filters: usize) -> Problem {
        let of = |lens| TensorDescriptor::nhwc(DataType::Half, lens).unwrap();
        let (input, weights) = (of([images, 16, 1 << 10, 1 << 10]), of([filters, 16, 1, 1]));
        let conv = ConvolutionDescriptor::d2();
        let output = conv.forward_output(&input, &weights).unwrap();
        let bias = TensorDescriptor::nchw(DataType::Half, [1, filters, 1, 1]).unwrap();
        let ops = vec![
            Op::ConvForward { conv, weights },
            Op::BiasForward { bias },
            Op::BiasForward { bias: output },
        ];
        Problem { input, output, ops, math: MathMode::Precise }
    }

    #[test]
    fn parts_are_as_large_as_can_be() {
        let images = |problem: &Problem| part_of(problem).map(|part| part.output.lens()[0]);
        assert_eq!(images(&problem(63, 16)), Some(63));
        assert_eq!(images(&problem(64, 16)), Some(32));
        assert_eq!(images(&problem(64, 32)), Some(16));
        assert_eq!(images(&problem(67, 16)), Some(1));
        assert_eq!(images(&problem(96, 64)), Some(12));
        assert_eq!(images(&problem(2, 1024)), None);
    }

    #[test]
    fn parameters_are_those_of_every_part() {
        // As many filters as images.
        let whole = problem(64, 64);
        let part = part_of(&whole).unwrap();
        assert_eq!(part.ops[..2], whole.ops[..2]);
        let Op::BiasForward { bias } = &part.ops[2] else { panic!("a residual") };
        assert_eq!((bias, part.input.lens()[0]), (&part.output, 8));
    }
}
