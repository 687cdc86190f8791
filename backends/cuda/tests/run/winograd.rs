//! Problems for Winograd's convolution, on shapes that hurt. Its results of whole numbers are nearly whole.

use std::sync::Arc;

use fuseplan_api::*;
use fuseplan_cuda::CudaBackend;
use libtest_mimic::Failed;

use crate::launches;
use crate::plan::{Content, Plan};

pub(crate) const WINOGRAD: &str = "cuda.conv_winograd.v1";

/// How far results of small whole numbers are off at most.
const TOLERANCE: f32 = 1e-3;

/// Whether a solver's results are as far from the expected ones as they may be at most.
pub(crate) fn agree(solver: &str, results: &[f32], expected: &[f32]) -> bool {
    let slack = if solver == WINOGRAD { TOLERANCE } else { 0.0 };
    let near = |(a, b): (&f32, &f32)| a == b || (a - b).abs() <= slack;
    results.len() == expected.len() && results.iter().zip(expected).all(near)
}

/// Images, channels, height and width, filters, paddings before and after.
type Shape = ([usize; 4], usize, [usize; 2], [usize; 2]);

const SHAPES: [(&str, Shape); 14] = [
    ("winograd.plain", ([3, 64, 16, 20], 128, [1, 1], [1, 1])),
    ("winograd.large", ([16, 64, 56, 56], 64, [1, 1], [1, 1])),
    ("winograd.odd", ([3, 37, 13, 13], 45, [1, 1], [1, 1])),
    ("winograd.small", ([9, 70, 7, 7], 67, [1, 1], [1, 1])),
    ("winograd.even", ([5, 66, 14, 14], 130, [1, 1], [1, 1])),
    ("winograd.valid", ([3, 36, 18, 18], 64, [0, 0], [0, 0])),
    ("winograd.wide", ([2, 36, 9, 16], 48, [2, 2], [2, 2])),
    ("winograd.asymmetric", ([2, 40, 11, 12], 48, [0, 1], [2, 0])),
    ("winograd.far", ([2, 33, 10, 12], 48, [5, 4], [1, 6])),
    ("winograd.line", ([5, 40, 9, 1], 33, [1, 1], [1, 1])),
    ("winograd.pixel", ([33, 40, 1, 1], 72, [1, 1], [1, 1])),
    ("winograd.few", ([2, 3, 8, 8], 5, [1, 1], [1, 1])),
    ("winograd.odd.many", ([64, 37, 13, 13], 67, [1, 1], [1, 1])),
    ("winograd.even.many", ([24, 66, 14, 14], 130, [1, 1], [1, 1])),
];

/// The shapes of which filters that may change are transformed each time. Of others FFMA reads them sooner.
const TRANSFORMED: [&str; 3] = ["winograd.large", "winograd.odd.many", "winograd.even.many"];

/// Whether as much is left to FFMA as the executable says, of filters that may change: those of all shapes but [`TRANSFORMED`], and
/// operands at other addresses. It is one launch, and a launch of its own transforms filters before the kernel of transformed ones.
pub(crate) fn left_to_ffma(device: &Arc<dyn Device>, name: &str, problem: &Problem) -> Result<(), Failed> {
    let stream = device.create_stream()?;
    let reads = !TRANSFORMED.contains(&name.trim_end_matches(".nhwc"));
    let solver = CudaBackend.solvers().iter().find(|found| found.id() == WINOGRAD).ok_or("no such solver")?;
    let binary = solver.compile_preferred(problem, device.info())?;
    for shift in [0, 1, 2, 4] {
        let plan = Plan::of(device, &stream, problem, *solver, &binary, shift, Content::Whole).changing();
        let detail = plan.detail();
        let (_, multiples) = detail.split_once("multiples of ").ok_or("no addresses are left")?;
        let multiples: Vec<usize> =
            multiples.split(' ').step_by(2).map_while(|word| word.parse().ok()).collect();
        if multiples.len() != 2 || detail.contains("filters that are not constant") != reads {
            return Err(detail.into());
        }
        let is_left = reads || multiples.iter().any(|of| !(shift * size_of::<f32>()).is_multiple_of(*of));
        let (found, expected) = (launches(device, &plan)?, if is_left { 1 } else { 2 });
        if found != expected {
            return Err(
                format!("{found} launches, {expected} expected, {shift} elements off: {detail}").into()
            );
        }
    }
    Ok(())
}

/// Each shape in both layouts, with what `behind` gives for its output: name, solver, problem.
pub(crate) fn problems(
    behind: [&dyn Fn(TensorDescriptor) -> Vec<Op>; 2],
) -> Vec<(&'static str, &'static str, Problem)> {
    let problem = |layout, (lens, filters, before, after): Shape, number: usize| {
        let of = |lens: [usize; 4]| TensorDescriptor::with_layout(DataType::Float, layout, &lens).unwrap();
        let (input, weights) = (of(lens), of([filters, lens[1], 3, 3]));
        let conv = ConvolutionDescriptor::d2().with_asymmetric_pads(before, after).unwrap();
        let output = conv.forward_output(&input, &weights).unwrap();
        let ops = [vec![Op::ConvForward { conv, weights }], behind[number % 2](output)].concat();
        Problem { input, output, ops, math: MathMode::Precise }
    };
    let shapes = SHAPES.into_iter().enumerate();
    let planes = shapes.clone().map(|(i, (name, shape))| (name, problem(TensorLayout::Nchw, shape, i)));
    let pixels = shapes.map(|(i, (name, shape))| {
        let name: &str = Box::leak(format!("{name}.nhwc").into_boxed_str());
        (name, problem(TensorLayout::Nhwc, shape, i + 1))
    });
    planes.chain(pixels).map(|(name, problem)| (name, WINOGRAD, problem)).collect()
}
