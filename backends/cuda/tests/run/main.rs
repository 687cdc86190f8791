//! What a device must do beyond right numbers, which the suite looks at: graphs, contexts of the caller's,
//! several devices, pointers of any alignment, the same bits every time. Ignored, with the reason, where there is no
//! device or no NVRTC; with `REQUIRE_BACKEND=cuda` that is a failure.
//!
//! Every plan's results are exact, so that the CPU backend gives the same numbers, or nearly so where factors are transformed.

mod caller;
mod plan;
mod winograd;

use std::ptr;
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Instant;

use fuseplan_api::*;
use fuseplan_cpu::CpuBackend;
use fuseplan_cuda::CudaBackend;
use libtest_mimic::{Arguments, Failed, Trial};

use plan::{Content, Plan, checked};
use winograd::{WINOGRAD, agree};

const RUNS: &str = "cuda.conv_wgmma_runs.v1";
const GEMV: &str = "cuda.conv_gemv.v1";

/// Each kind of kernel with what may stand behind it: name, solver, problem.
fn problems() -> Vec<(&'static str, &'static str, Problem)> {
    use BatchNormMode::{PerActivation, Spatial};
    use DataType::{Float, Half};
    use TensorLayout::{Ncdhw, Nchw, Nhwc};
    let relu = || Op::ActivationForward { mode: ActivationMode::Relu };
    let image =
        |data_type, layout| TensorDescriptor::with_layout(data_type, layout, &[3, 32, 9, 16]).unwrap();
    let alone = |input: TensorDescriptor, ops| Problem { input, output: input, ops, math: MathMode::Precise };
    // Bias, residual and activation.
    let chain = |output: TensorDescriptor| {
        let channels = [1, output.lens()[1], 1, 1];
        let bias = TensorDescriptor::nchw(output.data_type(), channels).unwrap();
        vec![Op::BiasForward { bias }, Op::BiasForward { bias: output }, relu()]
    };
    let norm = |mode| vec![Op::BatchNormInference { mode, params: Float }, relu()];
    let conv = |data_type, layout, filters, groups: usize, behind: &dyn Fn(TensorDescriptor) -> Vec<Op>| {
        let input = image(data_type, layout);
        let conv = ConvolutionDescriptor::d2().with_pads([1, 1]).unwrap();
        let conv = conv.with_groups(groups).unwrap();
        let weights = [filters, 32 / groups, 3, 3];
        let weights = TensorDescriptor::with_layout(data_type, layout, &weights).unwrap();
        let output = conv.forward_output(&input, &weights).unwrap();
        let ops = [vec![Op::ConvForward { conv, weights }], behind(output)].concat();
        Problem { input, output, ops, math: MathMode::Precise }
    };
    let convolved = |data_type, layout| conv(data_type, layout, 48, 1, &chain);
    let normed = |layout, mode| conv(Half, layout, 48, 1, &|_| norm(mode));
    let tf32 = |layout| Problem { math: MathMode::AllowTf32, ..convolved(Float, layout) };
    let depthwise = |data_type, layout| conv(data_type, layout, 32, 32, &chain);
    // A deep product of few pixels, whose depth several blocks share.
    let deep = |data_type, layout, math| {
        let input = TensorDescriptor::with_layout(data_type, layout, &[1, 520, 7, 7]).unwrap();
        let conv = ConvolutionDescriptor::d2().with_pads([1, 1]).unwrap();
        let weights = TensorDescriptor::with_layout(data_type, layout, &[72, 520, 3, 3]).unwrap();
        let output = conv.forward_output(&input, &weights).unwrap();
        let ops = [vec![Op::ConvForward { conv, weights }], chain(output)].concat();
        Problem { input, output, ops, math }
    };
    // Filters of so many channels are streamed.
    let wide = |groups: usize, image: [usize; 2], behind: &dyn Fn(TensorDescriptor) -> Vec<Op>| {
        let input =
            TensorDescriptor::with_layout(Half, Nchw, &[2, 272 * groups, image[0], image[1]]).unwrap();
        let weights = TensorDescriptor::with_layout(Half, Nchw, &[72 * groups, 272, 3, 3]).unwrap();
        let conv = ConvolutionDescriptor::d2().with_pads([1, 1]).unwrap().with_groups(groups).unwrap();
        let output = conv.forward_output(&input, &weights).unwrap();
        let ops = [vec![Op::ConvForward { conv, weights }], behind(output)].concat();
        Problem { input, output, ops, math: MathMode::Precise }
    };
    let volume = || {
        let input = TensorDescriptor::with_layout(Half, Ncdhw, &[2, 40, 4, 9, 24]).unwrap();
        let weights = TensorDescriptor::with_layout(Half, Ncdhw, &[72, 40, 3, 3, 3]).unwrap();
        let conv = ConvolutionDescriptor::d3().with_pads([0, 1, 1]).unwrap();
        let output = conv.forward_output(&input, &weights).unwrap();
        let bias = TensorDescriptor::with_layout(Half, Ncdhw, &[1, 72, 1, 1, 1]).unwrap();
        let ops = vec![
            Op::ConvForward { conv, weights },
            Op::BiasForward { bias },
            Op::BiasForward { bias: output },
            relu(),
        ];
        Problem { input, output, ops, math: MathMode::Precise }
    };
    // 1x1 of a few pixels, and of whole planes.
    let pointwise = |lens: [usize; 4]| {
        let input = TensorDescriptor::with_layout(Half, Nchw, &lens).unwrap();
        let weights = TensorDescriptor::with_layout(Half, Nchw, &[72, lens[1], 1, 1]).unwrap();
        let conv = ConvolutionDescriptor::d2();
        let output = conv.forward_output(&input, &weights).unwrap();
        let ops = [vec![Op::ConvForward { conv, weights }], chain(output)].concat();
        Problem { input, output, ops, math: MathMode::Precise }
    };
    let (precise, tf32_allowed) = (MathMode::Precise, MathMode::AllowTf32);
    // 1x1 of few channels, channels innermost: filters that stay come in the order of lanes, 16 at a time, and others as they are.
    let narrow_of = |images, filters, math| {
        let input = TensorDescriptor::with_layout(Float, Nhwc, &[images, 36, 9, 16]).unwrap();
        let weights = TensorDescriptor::with_layout(Float, Nhwc, &[filters, 36, 1, 1]).unwrap();
        let conv = ConvolutionDescriptor::d2();
        let output = conv.forward_output(&input, &weights).unwrap();
        let ops = [vec![Op::ConvForward { conv, weights }], chain(output)].concat();
        Problem { input, output, ops, math }
    };
    let narrow = |filters, math| narrow_of(3, filters, math);
    // Planes that TMA can address, and of an odd number of elements, large or small.
    let runs_of = |filters: usize, lens: [usize; 4], extent: usize, math| {
        let input = TensorDescriptor::with_layout(Float, Nchw, &lens).unwrap();
        let weights = [filters, lens[1], extent, extent];
        let weights = TensorDescriptor::with_layout(Float, Nchw, &weights).unwrap();
        let conv = ConvolutionDescriptor::d2().with_pads([(extent - 1) / 2; 2]).unwrap();
        let output = conv.forward_output(&input, &weights).unwrap();
        let ops = [vec![Op::ConvForward { conv, weights }], chain(output)].concat();
        Problem { input, output, ops, math }
    };
    let runs = |lens, extent, math| runs_of(72, lens, extent, math);
    // The same without the residual: results of TF32 pass through shared memory.
    let passed = |lens, extent| {
        let mut problem = runs(lens, extent, tf32_allowed);
        problem.ops.remove(2);
        problem
    };
    // The same of 16 bits, whose planes are lines of one, two or eight to TMA.
    let runs_of_halves =
        |lens: &[usize], extent: usize, groups: usize, [pad, stride, dilation]: [usize; 3]| {
            let layout = if lens.len() == 5 { Ncdhw } else { Nchw };
            let input = TensorDescriptor::with_layout(Half, layout, lens).unwrap();
            let dims = lens.len() - 2;
            let filters = [&[72 * groups, lens[1] / groups][..], &vec![extent; dims]].concat();
            let weights = TensorDescriptor::with_layout(Half, layout, &filters).unwrap();
            let conv = ConvolutionDescriptor::of_dims(dims).unwrap().with_groups(groups).unwrap();
            let conv = conv.with_pads(vec![pad; dims]).unwrap().with_strides(vec![stride; dims]).unwrap();
            let conv = conv.with_dilations(vec![dilation; dims]).unwrap();
            let output = conv.forward_output(&input, &weights).unwrap();
            let channels = [vec![1, output.lens()[1]], vec![1; dims]].concat();
            let bias = TensorDescriptor::with_layout(Half, layout, &channels).unwrap();
            let ops = vec![
                Op::ConvForward { conv, weights },
                Op::BiasForward { bias },
                Op::BiasForward { bias: output },
                relu(),
            ];
            Problem { input, output, ops, math: MathMode::Precise }
        };
    // The same without the residual: results of 16 bits are written as words.
    let words = |lens: &[usize], extent: usize, groups: usize, pad: usize| {
        let mut problem = runs_of_halves(lens, extent, groups, [pad, 1, 1]);
        problem.ops.remove(2);
        problem
    };
    // A few pixels of two groups, whose filters have so many elements between them; and a window as large as the image.
    let vectors = |data_type, gap: usize| {
        let input = TensorDescriptor::with_layout(data_type, Nhwc, &[3, 528, 1, 2]).unwrap();
        let weights = TensorDescriptor::new(data_type, &[140, 264, 1, 1], &[264 + gap, 1, 264, 264]).unwrap();
        let conv = ConvolutionDescriptor::d2().with_groups(2).unwrap();
        let output = conv.forward_output(&input, &weights).unwrap();
        let ops = [vec![Op::ConvForward { conv, weights }], chain(output)].concat();
        Problem { input, output, ops, math: MathMode::Precise }
    };
    let window = || {
        let input = TensorDescriptor::with_layout(Half, Nchw, &[2, 520, 7, 7]).unwrap();
        let weights = TensorDescriptor::with_layout(Half, Nchw, &[72, 520, 7, 7]).unwrap();
        let conv = ConvolutionDescriptor::d2();
        let output = conv.forward_output(&input, &weights).unwrap();
        let ops = [vec![Op::ConvForward { conv, weights }], chain(output)].concat();
        Problem { input, output, ops, math: MathMode::Precise }
    };
    // Groups of powers of two, so that shares of sums are exact.
    let trained = |data_type, layout, ops| {
        alone(TensorDescriptor::with_layout(data_type, layout, &[4, 32, 8, 16]).unwrap(), ops)
    };
    // Channels that are no whole number of slices, and pixels that are worth several blocks.
    let shared = |data_type, layout, ops| {
        alone(TensorDescriptor::with_layout(data_type, layout, &[16, 40, 32, 32]).unwrap(), ops)
    };
    let forward = |mode| vec![Op::BatchNormForward { mode, running: true }, relu()];
    let backward =
        |mode| vec![Op::BatchNormBackward { mode }, Op::ActivationBackward { mode: ActivationMode::Relu }];
    let mut all = vec![
        ("wgmma", "cuda.conv_wgmma.v1", convolved(Half, Nhwc)),
        ("wgmma.norm", "cuda.conv_wgmma.v1", normed(Nhwc, Spatial)),
        ("wgmma.tf32", "cuda.conv_wgmma.v1", tf32(Nhwc)),
        ("wgmma.tf32.pointwise", "cuda.conv_wgmma.v1", narrow(48, tf32_allowed)),
        // Tiles that end behind the last filter or within 16, where filters come in the order of lanes too, of three parts, and vectors of
        // one, two and four.
        ("wgmma.tf32.pointwise.40", "cuda.conv_wgmma.v1", narrow(40, tf32_allowed)),
        ("wgmma.tf32.pointwise.42", "cuda.conv_wgmma.v1", narrow(42, tf32_allowed)),
        ("wgmma.tf32.pointwise.43", "cuda.conv_wgmma.v1", narrow(43, tf32_allowed)),
        ("wgmma.tf32.pointwise.44", "cuda.conv_wgmma.v1", narrow(44, tf32_allowed)),
        ("wgmma.tf32.pointwise.72", "cuda.conv_wgmma.v1", narrow(72, tf32_allowed)),
        // So many pixels are worth tiles of all filters.
        ("wgmma.tf32.pointwise.72.large", "cuda.conv_wgmma.v1", narrow_of(120, 72, tf32_allowed)),
        ("wgmma.tf32.pointwise.88", "cuda.conv_wgmma.v1", narrow(88, tf32_allowed)),
        ("wgmma.tf32x3", "cuda.conv_wgmma.v1", convolved(Float, Nhwc)),
        ("wgmma.tf32x3.pointwise.40", "cuda.conv_wgmma.v1", narrow(40, precise)),
        ("wgmma.tf32x3.pointwise.43", "cuda.conv_wgmma.v1", narrow(43, precise)),
        ("wgmma.tf32x3.pointwise.44", "cuda.conv_wgmma.v1", narrow(44, precise)),
        ("wgmma.tf32x3.pointwise.72", "cuda.conv_wgmma.v1", narrow(72, precise)),
        ("wgmma.gather", "cuda.conv_wgmma_gather.v1", convolved(Half, Nchw)),
        ("wgmma.gather.norm", "cuda.conv_wgmma_gather.v1", normed(Nchw, PerActivation)),
        ("wgmma.planes", "cuda.conv_wgmma_planes.v1", pointwise([3, 32, 9, 16])),
        ("wgmma.planes.rearranged", "cuda.conv_wgmma_planes.v1", pointwise([3, 35, 9, 16])),
        ("wgmma.planes.words", "cuda.conv_wgmma_planes.v1", words(&[5, 64, 7, 7], 1, 1, 0)),
        ("wgmma.planes.words.small", "cuda.conv_wgmma_planes.v1", words(&[70, 64, 3, 3], 1, 1, 0)),
        ("wgmma.planes.words.even", "cuda.conv_wgmma_planes.v1", words(&[3, 64, 14, 14], 1, 1, 0)),
        ("wgmma.planes.words.images", "cuda.conv_wgmma_planes.v1", words(&[9, 64, 14, 14], 1, 1, 0)),
        ("wgmma.planes.words.groups", "cuda.conv_wgmma_planes.v1", words(&[11, 64, 7, 7], 1, 2, 0)),
        ("wgmma.planes.words.pairs", "cuda.conv_wgmma_planes.v1", words(&[5, 64, 6, 7], 1, 1, 0)),
        ("wgmma.planes.halves", "cuda.conv_wgmma_planes.v1", words(&[3, 64, 9, 16], 1, 1, 0)),
        ("wgmma.planes.deep", "cuda.conv_wgmma_planes.v1", pointwise([1, 1040, 7, 8])),
        ("wgmma.lines", "cuda.conv_wgmma_lines.v1", convolved(Half, Nchw)),
        ("wgmma.lines.norm", "cuda.conv_wgmma_lines.v1", normed(Nchw, PerActivation)),
        ("wgmma.lines.streamed", "cuda.conv_wgmma_lines.v1", wide(1, [9, 16], &chain)),
        // So many pixels are worth preparing filters for each time.
        ("wgmma.lines.streamed.large", "cuda.conv_wgmma_lines.v1", wide(1, [41, 48], &chain)),
        ("wgmma.transposed.large", "cuda.conv_wgmma_transposed.v1", wide(1, [41, 48], &chain)),
        ("wgmma.transposed", "cuda.conv_wgmma_transposed.v1", wide(1, [9, 16], &chain)),
        ("wgmma.transposed.volume", "cuda.conv_wgmma_transposed.v1", volume()),
        ("wgmma.reordered", "cuda.conv_wgmma_reordered.v1", wide(1, [9, 16], &chain)),
        ("wgmma.reordered.odd", "cuda.conv_wgmma_reordered.v1", convolved(Half, Nchw)),
        (
            "wgmma.reordered.groups",
            "cuda.conv_wgmma_reordered.v1",
            wide(2, [9, 15], &|_| norm(PerActivation)),
        ),
        ("wgmma.reordered.volume", "cuda.conv_wgmma_reordered.v1", volume()),
        ("wgmma.reordered.deep", "cuda.conv_wgmma_reordered.v1", deep(Half, Nchw, precise)),
        ("wgmma.reordered.tf32", "cuda.conv_wgmma_reordered.v1", runs([3, 37, 13, 15], 3, tf32_allowed)),
        (
            "wgmma.lines.streamed.groups",
            "cuda.conv_wgmma_lines.v1",
            wide(2, [9, 16], &|_| norm(PerActivation)),
        ),
        ("wgmma.runs", RUNS, runs([3, 36, 18, 16], 3, tf32_allowed)),
        ("wgmma.runs.pointwise", RUNS, runs([3, 80, 9, 16], 1, tf32_allowed)),
        ("wgmma.runs.vectors", RUNS, passed([3, 36, 14, 14], 3)),
        ("wgmma.runs.vectors.two", RUNS, passed([3, 80, 10, 15], 1)),
        ("wgmma.runs.vectors.four", RUNS, passed([3, 80, 8, 14], 1)),
        ("wgmma.runs.singles", RUNS, passed([2, 36, 13, 15], 3)),
        ("wgmma.runs.even", RUNS, passed([3, 36, 18, 16], 2)),
        ("wgmma.runs.many_taps", RUNS, runs([2, 36, 18, 16], 5, tf32_allowed)),
        // Filters that may change come as rows.
        ("wgmma.runs.rows", RUNS, runs_of(256, [4, 128, 18, 16], 1, tf32_allowed)),
        ("wgmma.runs.channels", RUNS, runs([2, 36, 13, 15], 3, tf32_allowed)),
        ("wgmma.runs.planes", RUNS, runs([5, 36, 7, 7], 3, tf32_allowed)),
        ("wgmma.runs.tf32x3", RUNS, runs([3, 36, 18, 16], 3, precise)),
        ("wgmma.runs.tf32x3.channels", RUNS, runs([2, 36, 13, 15], 3, precise)),
        ("wgmma.runs.tf32x3.planes", RUNS, runs([5, 80, 7, 7], 1, precise)),
        ("wgmma.runs16", RUNS, runs_of_halves(&[3, 40, 18, 16], 3, 1, [1, 1, 1])),
        ("wgmma.runs16.uneven", RUNS, runs_of_halves(&[3, 32, 9, 30], 3, 1, [1, 1, 1])),
        ("wgmma.runs16.valid", RUNS, runs_of_halves(&[3, 40, 16, 15], 3, 1, [0, 1, 1])),
        ("wgmma.runs16.two", RUNS, runs_of_halves(&[3, 36, 14, 14], 3, 1, [1, 1, 1])),
        ("wgmma.runs16.eight", RUNS, runs_of_halves(&[2, 40, 13, 15], 3, 1, [1, 1, 1])),
        ("wgmma.runs16.planes", RUNS, runs_of_halves(&[5, 64, 7, 7], 3, 1, [1, 1, 1])),
        ("wgmma.runs16.boxes", RUNS, runs_of_halves(&[2, 40, 23, 61], 3, 1, [1, 1, 1])),
        ("wgmma.runs16.pointwise", RUNS, runs_of_halves(&[3, 80, 9, 16], 1, 1, [0, 1, 1])),
        ("wgmma.runs16.pointwise.odd", RUNS, runs_of_halves(&[3, 64, 9, 7], 1, 1, [0, 1, 1])),
        ("wgmma.runs16.strided", RUNS, runs_of_halves(&[3, 40, 17, 23], 3, 1, [1, 2, 1])),
        ("wgmma.runs16.dilated", RUNS, runs_of_halves(&[3, 40, 17, 23], 3, 1, [2, 1, 2])),
        ("wgmma.runs16.far", RUNS, runs_of_halves(&[3, 32, 17, 18], 3, 1, [3, 1, 3])),
        ("wgmma.runs16.wide", RUNS, runs_of_halves(&[2, 40, 13, 19], 5, 1, [2, 1, 1])),
        ("wgmma.runs16.groups", RUNS, runs_of_halves(&[2, 64, 13, 15], 3, 2, [1, 1, 1])),
        ("wgmma.runs16.words", RUNS, words(&[3, 64, 9, 7], 1, 1, 0)),
        ("wgmma.runs16.words.taps", RUNS, words(&[2, 40, 13, 15], 3, 1, 1)),
        ("wgmma.runs16.words.planes", RUNS, words(&[5, 64, 7, 7], 3, 1, 1)),
        ("wgmma.runs16.words.groups", RUNS, words(&[2, 64, 13, 15], 3, 2, 1)),
        ("wgmma.runs16.words.volume", RUNS, words(&[2, 40, 5, 9, 11], 3, 1, 1)),
        ("wgmma.runs16.vectors", RUNS, words(&[5, 64, 14, 14], 3, 1, 1)),
        ("wgmma.runs16.vectors.eight", RUNS, words(&[3, 40, 16, 24], 3, 1, 1)),
        ("wgmma.runs16.vectors.groups", RUNS, words(&[3, 64, 12, 17], 3, 2, 1)),
        ("wgmma.runs16.vectors.volume", RUNS, words(&[2, 40, 3, 9, 12], 3, 1, 1)),
        // Filters that may change are a block's own.
        ("wgmma.runs16.own", RUNS, words(&[9, 64, 17, 15], 1, 1, 0)),
        ("wgmma.runs16.own.two", RUNS, words(&[9, 64, 14, 14], 1, 1, 0)),
        ("wgmma.runs16.own.eight", RUNS, words(&[9, 96, 9, 16], 1, 1, 0)),
        ("wgmma.runs16.own.groups", RUNS, words(&[4, 128, 23, 15], 1, 2, 0)),
        ("wgmma.runs16.own.planes", RUNS, words(&[9, 128, 7, 7], 1, 1, 0)),
        // So many pixels are worth tiles that overlap: by two, three and four warpgroups, of a plane's first pixel, its last, or both.
        ("wgmma.runs16.sectors", RUNS, words(&[8, 64, 55, 55], 1, 1, 0)),
        ("wgmma.runs16.sectors.whole", RUNS, words(&[100, 64, 13, 13], 1, 1, 0)),
        ("wgmma.runs16.sectors.groups", RUNS, words(&[16, 64, 41, 41], 1, 2, 0)),
        ("wgmma.runs16.volume", RUNS, runs_of_halves(&[2, 40, 4, 9, 11], 3, 1, [1, 1, 1])),
        ("gemv", GEMV, vectors(Half, 0)),
        ("gemv.odd", GEMV, vectors(Half, 3)),
        ("gemv.f32", GEMV, vectors(Float, 2)),
        ("gemv.window", GEMV, window()),
        ("mma.nhwc", "cuda.conv_mma.v1", convolved(Half, Nhwc)),
        ("mma.nchw", "cuda.conv_mma.v1", convolved(Half, Nchw)),
        ("mma.norm", "cuda.conv_mma.v1", normed(Nhwc, PerActivation)),
        ("mma.tf32.nhwc", "cuda.conv_mma.v1", tf32(Nhwc)),
        ("mma.tf32.nchw", "cuda.conv_mma.v1", tf32(Nchw)),
        ("ffma.nhwc", "cuda.conv_ffma.v1", convolved(Float, Nhwc)),
        ("ffma.nchw", "cuda.conv_ffma.v1", convolved(Float, Nchw)),
        ("wgmma.deep", "cuda.conv_wgmma.v1", deep(Half, Nhwc, precise)),
        ("wgmma.gather.deep", "cuda.conv_wgmma_gather.v1", deep(Half, Nchw, precise)),
        ("mma.deep.nhwc", "cuda.conv_mma.v1", deep(Half, Nhwc, precise)),
        ("mma.deep.nchw", "cuda.conv_mma.v1", deep(Half, Nchw, precise)),
        ("mma.deep.tf32.nhwc", "cuda.conv_mma.v1", deep(Float, Nhwc, tf32_allowed)),
        ("mma.deep.tf32.nchw", "cuda.conv_mma.v1", deep(Float, Nchw, tf32_allowed)),
        ("ffma.deep.nhwc", "cuda.conv_ffma.v1", deep(Float, Nhwc, precise)),
        ("ffma.deep.nchw", "cuda.conv_ffma.v1", deep(Float, Nchw, precise)),
        ("depthwise.nhwc", "cuda.conv_depthwise.v1", depthwise(Half, Nhwc)),
        ("depthwise.nchw", "cuda.conv_depthwise.v1", depthwise(Half, Nchw)),
        ("depthwise.f32", "cuda.conv_depthwise.v1", depthwise(Float, Nchw)),
        ("depthwise.multiplier", "cuda.conv_depthwise.v1", conv(Half, Nhwc, 64, 32, &chain)),
        ("element_wise.nhwc", "cuda.element_wise.v1", alone(image(Half, Nhwc), chain(image(Half, Nhwc)))),
        ("element_wise.nchw", "cuda.element_wise.v1", alone(image(Float, Nchw), chain(image(Float, Nchw)))),
        ("norm.spatial.nhwc", "cuda.element_wise.v1", alone(image(Half, Nhwc), norm(Spatial))),
        ("norm.spatial.nchw", "cuda.element_wise.v1", alone(image(Half, Nchw), norm(Spatial))),
        ("norm.per-activation.nhwc", "cuda.element_wise.v1", alone(image(Float, Nhwc), norm(PerActivation))),
        (
            "norm.per-activation.alone",
            "cuda.element_wise.v1",
            alone(image(Half, Nchw), vec![Op::BatchNormInference { mode: PerActivation, params: Float }]),
        ),
        ("forward.spatial.nhwc", TRAINING, trained(Half, Nhwc, forward(Spatial))),
        ("forward.spatial.nchw", TRAINING, trained(Float, Nchw, forward(Spatial))),
        ("forward.per-activation.nhwc", TRAINING, trained(Float, Nhwc, forward(PerActivation))),
        ("forward.per-activation.nchw", TRAINING, trained(Half, Nchw, forward(PerActivation))),
        (
            "forward.alone",
            TRAINING,
            trained(Half, Nchw, vec![Op::BatchNormForward { mode: Spatial, running: false }]),
        ),
        ("backward.spatial.nhwc", TRAINING, trained(Float, Nhwc, backward(Spatial))),
        ("backward.spatial.nchw", TRAINING, trained(Half, Nchw, backward(Spatial))),
        ("backward.per-activation.nhwc", TRAINING, trained(Half, Nhwc, backward(PerActivation))),
        ("backward.per-activation.nchw", TRAINING, trained(Float, Nchw, backward(PerActivation))),
        ("backward.alone", TRAINING, trained(Half, Nhwc, vec![Op::BatchNormBackward { mode: Spatial }])),
        ("forward.shared.nhwc", TRAINING, shared(Half, Nhwc, forward(Spatial))),
        ("forward.shared.nchw", TRAINING, shared(Half, Nchw, forward(Spatial))),
        ("backward.shared.nhwc", TRAINING, shared(Float, Nhwc, backward(Spatial))),
        ("backward.shared.nchw", TRAINING, shared(Float, Nchw, backward(Spatial))),
        ("direct", "cuda.direct.v1", convolved(Half, Nchw)),
    ];
    all.extend(winograd::problems([&chain, &|_| norm(PerActivation)]));
    all
}

const TRAINING: &str = "cuda.batch_norm_training.v1";

/// The plan on a solver of the CUDA backend.
fn plan(device: &Arc<dyn Device>, stream: &Stream, problem: &Problem, solver: &str, shift: usize) -> Plan {
    let solver = CudaBackend.solvers().iter().find(|found| found.id() == solver).unwrap();
    Plan::new(device, stream, problem, *solver, shift, Content::Whole)
}

/// What the CPU backend gives for the same operands, by the plainest of its solvers that takes the problem.
fn reference(problem: &Problem) -> Vec<f32> {
    static CPU: LazyLock<Arc<dyn Device>> = LazyLock::new(|| CpuBackend.open(0).unwrap());
    let stream = CPU.create_stream().unwrap();
    let takes = |solver: &&&dyn Solver| solver.applies(problem, CPU.info()).is_ok();
    let solver = CpuBackend.solvers().iter().rfind(takes).unwrap();
    let plan = Plan::new(&CPU, &stream, problem, *solver, 0, Content::Whole);
    plan.launch(&stream);
    plan.results(&stream)
}

/// What can be known with no device: the solver takes the problem on Hopper, and there is something to compare with.
fn expected(problem: &Problem, solver: &str) -> Result<(), Failed> {
    let solver = CudaBackend.solvers().iter().find(|found| found.id() == solver).ok_or("no such solver")?;
    let hopper = CudaBackend.target("sm_90a")?;
    solver.applies(problem, &hopper).map_err(|refusal| refusal.to_string())?;
    let results = reference(problem);
    let mut several = results.clone();
    several.sort_by(f32::total_cmp);
    several.dedup();
    if results.iter().any(|value| value.is_nan()) || several.len() < 4 {
        return Err(format!("{} results are {several:?}", results.len()).into());
    }
    Ok(())
}

/// Every pointer at an odd element.
fn misaligned(device: &Arc<dyn Device>, problem: &Problem, solver: &str) -> Result<(), Failed> {
    let stream = device.create_stream()?;
    let expected = reference(problem);
    for shift in [0, 1, 3] {
        let plan = plan(device, &stream, problem, solver, shift);
        plan.launch(&stream);
        if !agree(solver, &plan.results(&stream), &expected) {
            return Err(format!("{solver} is wrong with pointers {shift} elements off").into());
        }
    }
    Ok(())
}

/// Every configuration, on pointers of any alignment, and twice on numbers whose sums depend on their order.
fn configured(device: &Arc<dyn Device>, problem: &Problem, solver: &str) -> Result<(), Failed> {
    let stream = device.create_stream()?;
    let expected = reference(problem);
    let solver = CudaBackend.solvers().iter().find(|found| found.id() == solver).unwrap();
    let all = solver.configurations(problem, device.info());
    // Compilers work in several threads at once.
    let binaries: Vec<_> = thread::scope(|scope| {
        let compile = |of: &Candidate| solver.compile(problem, device.info(), &of.configuration);
        let threads: Vec<_> = all.iter().map(|of| scope.spawn(move || compile(of))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (Candidate { configuration, .. }, binary) in all.iter().zip(binaries) {
        let binary = binary?;
        let of = |shift, content| Plan::of(device, &stream, problem, *solver, &binary, shift, content);
        checked(of, &stream, |results| agree(solver.id(), results, &expected), solver.id() == GEMV)
            .map_err(|reason| format!("{configuration} {reason}"))?;
    }
    Ok(())
}

/// A hundred executions on numbers whose sums depend on their order.
fn repeated(device: &Arc<dyn Device>, problem: &Problem, solver: &str) -> Result<(), Failed> {
    let stream = device.create_stream()?;
    let solver = CudaBackend.solvers().iter().find(|found| found.id() == solver).unwrap();
    let plan = Plan::new(device, &stream, problem, *solver, 0, Content::Noise);
    plan.launch(&stream);
    let first = plan.bytes(&stream);
    for run in 1..100 {
        plan.reset(&stream);
        plan.launch(&stream);
        if plan.bytes(&stream) != first {
            return Err(format!("run {run} gave other bits").into());
        }
    }
    Ok(())
}

/// Captures a launch into a graph and replays it: the first of a plan, and one with all that an earlier one has prepared.
fn captured(device: &Arc<dyn Device>, problem: &Problem, solver: &str) -> Result<(), Failed> {
    let stream = device.create_stream()?;
    let first = plan(device, &stream, problem, solver, 0);
    captured_and_replayed(device, problem, solver, &first)?;
    let second = plan(device, &stream, problem, solver, 0);
    second.launch(&stream);
    second.reset(&stream);
    captured_and_replayed(device, problem, solver, &second)
}

fn captured_and_replayed(
    device: &Arc<dyn Device>,
    problem: &Problem,
    solver: &str,
    plan: &Plan,
) -> Result<(), Failed> {
    let stream = device.create_stream()?;
    let graph = Graph::capture(&**device, |stream| {
        plan.launch(stream);
        Ok::<_, BackendError>(())
    })?;
    device.synchronize(&stream)?;
    let untouched = plan.written.iter().flat_map(|buffer| &buffer.bytes);
    if !untouched.eq(&plan.bytes(&stream)) {
        return Err("something ran at the capture".into());
    }
    let graph = graph.instantiate()?;
    // SAFETY: the plan's buffers live until they have been read.
    unsafe { graph.launch(stream.raw()) }?;
    if !agree(solver, &plan.results(&stream), &reference(problem)) {
        return Err("the replay gave another result".into());
    }
    Ok(())
}

/// With operands that may change, in turns with another plan that has others: on one stream, on another meanwhile, and in a graph.
fn changing(device: &Arc<dyn Device>, problem: &Problem, solver: &str) -> Result<(), Failed> {
    let streams = [device.create_stream()?, device.create_stream()?];
    let found = CudaBackend.solvers().iter().find(|found| found.id() == solver).unwrap();
    let binary = found.compile_preferred(problem, device.info())?;
    let of = |content| Plan::of(device, &streams[0], problem, *found, &binary, 0, content).changing();
    let (whole, noise) = (of(Content::Whole), of(Content::Noise));
    let on_other = of(Content::Noise);
    device.synchronize(&streams[0])?;
    noise.launch(&streams[0]);
    let (expected, alone) = (reference(problem), noise.bytes(&streams[0]));
    let check = |what: &str| -> Result<(), Failed> {
        if !agree(solver, &whole.results(&streams[0]), &expected) || noise.bytes(&streams[0]) != alone {
            return Err(format!("{what}: wrong beside another plan").into());
        }
        [&whole, &noise].into_iter().for_each(|plan| plan.reset(&streams[0]));
        Ok(device.synchronize(&streams[0])?)
    };
    for _ in 0..20 {
        whole.launch(&streams[0]);
        on_other.launch(&streams[1]);
        noise.launch(&streams[0]);
    }
    if on_other.bytes(&streams[1]) != alone {
        return Err("wrong on another stream".into());
    }
    check("on a stream")?;
    let graph = Graph::capture(&**device, |stream| {
        [&whole, &noise, &whole].into_iter().for_each(|plan| plan.launch(stream));
        Ok::<_, BackendError>(())
    })?;
    let graph = graph.instantiate()?;
    for _ in 0..3 {
        // SAFETY: the plans' buffers live until they have been read.
        unsafe { graph.launch(streams[0].raw()) }?;
        on_other.launch(&streams[1]);
        check("in a graph")?;
    }
    Ok(())
}

/// In a context of the caller's own: right numbers, and the context is left as it was.
fn adopted(device: &Arc<dyn Device>, problem: &Problem, solver: &str) -> Result<(), Failed> {
    let context = caller::create_context(device.info().ordinal)?;
    // The thread's current context, and the same by its address.
    for raw in [ptr::null_mut(), context] {
        // SAFETY: the context lives until all that is made of it here is gone.
        let adopted = unsafe { CudaBackend::adopt(raw) }?;
        if adopted.info() != device.info() {
            return Err(format!("{:?} instead of {:?}", adopted.info(), device.info()).into());
        }
        let stream = adopted.create_stream()?;
        let plan = plan(&adopted, &stream, problem, solver, 0);
        plan.launch(&stream);
        if !agree(solver, &plan.results(&stream), &reference(problem)) {
            return Err("wrong in a caller's context".into());
        }
        if caller::current_context()? != context {
            return Err("the thread's current context was changed".into());
        }
    }
    caller::destroy_context(context)
}

/// Two executions as nodes of a caller's graph, the second behind the first; then other operands for one.
fn nodes(device: &Arc<dyn Device>, problem: &Problem, solver: &str) -> Result<(), Failed> {
    let stream = device.create_stream()?;
    let plans: Vec<_> = [0, 1, 2].into_iter().map(|_| plan(device, &stream, problem, solver, 0)).collect();
    let graph = |plan: &Plan| {
        Graph::capture(&**device, |stream| {
            plan.launch(stream);
            Ok::<_, BackendError>(())
        })
    };
    caller::enter_primary(device.info().ordinal)?;
    let whole = caller::create_graph()?;
    // SAFETY: the graph is live and this thread's; the plans live until it has run.
    let second = unsafe {
        let first = graph(&plans[0])?.add_to(whole, &[])?;
        graph(&plans[1])?.add_to(whole, &[first])?
    };
    let executable = caller::instantiate(whole)?;
    caller::launch(executable, stream.raw())?;
    let expected = reference(problem);
    let is_right = |plan: &Plan| agree(solver, &plan.results(&stream), &expected);
    if !is_right(&plans[0]) || !is_right(&plans[1]) {
        return Err("a node gave another result".into());
    }
    if is_right(&plans[2]) {
        return Err("what is in no graph ran".into());
    }
    // SAFETY: operands outlive the launch, and the node is of the graph that was instantiated.
    unsafe { graph(&plans[2])?.update(executable, second) }?;
    caller::launch(executable, stream.raw())?;
    if !is_right(&plans[2]) {
        return Err("a node with other operands gave another result".into());
    }
    caller::destroy_graph(whole, executable)?;
    caller::leave_primary(device.info().ordinal)
}

/// Every type has peaks, which are measured once, in well under a second.
fn peaks(device: &Arc<dyn Device>) -> Result<(), Failed> {
    for data_type in [DataType::Float, DataType::Half, DataType::BFloat16] {
        let start = Instant::now();
        let measured = device.peaks(data_type)?;
        println!(
            "{data_type}: {:.1} TFLOP/s, {:.2} TB/s, measured in {:?}",
            measured.flops / 1e12,
            measured.bytes / 1e12,
            start.elapsed()
        );
        if !(measured.flops > 1e10 && measured.flops < 1e18 && measured.bytes > 1e9 && measured.bytes < 1e15)
        {
            return Err(format!("{measured:?}").into());
        }
        if device.peaks(data_type)? != measured {
            return Err("measured again".into());
        }
    }
    Ok(())
}

/// What a test says that is asked for where it is ignored.
const NO_DEVICE: &str = "cuda has no device here";

/// Devices by their ordinals: one plan compiled for each, run on each.
fn devices(problem: &Problem, solver: &str) -> Result<(), Failed> {
    let mut results = Vec::new();
    for info in CudaBackend.discover().devices {
        let device = CudaBackend.open(info.ordinal)?;
        let stream = device.create_stream()?;
        let plan = plan(&device, &stream, problem, solver, 0);
        plan.launch(&stream);
        results.push(plan.bytes(&stream));
        if !agree(solver, &plan.results(&stream), &reference(problem)) {
            return Err(format!("device {} is wrong", info.ordinal).into());
        }
    }
    if results.len() < 2 {
        return Err(format!("cuda has {} devices here, of two that are compared", results.len()).into());
    }
    if results.iter().any(|found| *found != results[0]) {
        return Err("devices differ".into());
    }
    Ok(())
}

/// An image whose bytes almost need a 32nd bit to count, as they are reordered and gathered.
fn large(device: &Arc<dyn Device>) -> Result<(), Failed> {
    let stream = device.create_stream()?;
    let tensor =
        |lens: [usize; 5]| TensorDescriptor::with_layout(DataType::Float, TensorLayout::Ncdhw, &lens);
    let (input, weights) = (tensor([1, 64, 4, 1448, 1448])?, tensor([32, 64, 1, 3, 3])?);
    let conv = ConvolutionDescriptor::d3().with_pads([0, 1, 1])?.with_strides([1, 2, 2])?;
    let output = conv.forward_output(&input, &weights)?;
    let problem =
        Problem { input, output, ops: vec![Op::ConvForward { conv, weights }], math: MathMode::AllowTf32 };
    let of = |id: &str| *CudaBackend.solvers().iter().find(|solver| solver.id() == id).unwrap();
    let reordered = of("cuda.conv_wgmma_reordered.v1");
    let plan = Plan::new(device, &stream, &problem, reordered, 0, Content::Whole);
    plan.launch(&stream);
    let found = plan.results(&stream);
    let gathered = plan.by(device, &stream, of("cuda.conv_wgmma_gather.v1"));
    gathered.launch(&stream);
    if found != gathered.results(&stream) {
        return Err("the two differ".into());
    }
    Ok(())
}

fn main() {
    let mut arguments = Arguments::from_args();
    // One device, and captures that forbid calls of other threads meanwhile.
    arguments.test_threads = Some(1);
    let found = CudaBackend.discover();
    let device =
        found.devices.first().map(|_| CudaBackend.open(0).unwrap()).filter(|_| found.notes.is_empty());
    if device.is_none() {
        println!("ignored: {}", found.notes.join("; "));
        if std::env::var("REQUIRE_BACKEND").is_ok_and(|names| names.split(',').any(|name| name == "cuda")) {
            std::process::exit(101);
        }
    }
    type Check = fn(&Arc<dyn Device>, &Problem, &str) -> Result<(), Failed>;
    let checks: [(&str, Check); 6] = [
        ("misaligned", misaligned),
        ("changing", changing),
        ("repeated", repeated),
        ("captured", captured),
        ("nodes", nodes),
        ("adopted", adopted),
    ];
    let mut trials = Vec::new();
    for (name, solver, problem) in problems() {
        for (check_name, check) in checks {
            // What a launch writes for the next. Running statistics would be those of many executions.
            let hands_on = ["lines", "transposed", "reordered", "runs", "backward.shared.nhwc", "winograd"];
            if check_name == "changing" && !hands_on.iter().any(|part| name.contains(part)) {
                continue;
            }
            let (problem, device) = (problem.clone(), device.clone());
            let ignored = device.is_none();
            let run = move || check(&device.ok_or(NO_DEVICE)?, &problem, solver);
            trials.push(Trial::test(format!("{check_name}.{name}"), run).with_ignored_flag(ignored));
        }
        let has_many = ["runs16", "wgmma.tf32"].iter().any(|part| name.contains(part));
        if [TRAINING, GEMV, WINOGRAD].contains(&solver) || has_many {
            let (problem, device) = (problem.clone(), device.clone());
            let ignored = device.is_none();
            let run = move || configured(&device.ok_or(NO_DEVICE)?, &problem, solver);
            trials.push(Trial::test(format!("configured.{name}"), run).with_ignored_flag(ignored));
        }
    }
    let is_alone = found.devices.len() < 2;
    if device.is_some() && is_alone {
        println!("ignored: devices.* because cuda has one device here, of two that are compared");
    }
    for (name, solver, problem) in problems() {
        let of_host = problem.clone();
        trials.push(Trial::test(format!("expected.{name}"), move || expected(&of_host, solver)));
        let trial = Trial::test(format!("devices.{name}"), move || devices(&problem, solver));
        trials.push(trial.with_ignored_flag(is_alone || device.is_none()));
    }
    type Alone = fn(&Arc<dyn Device>) -> Result<(), Failed>;
    let alone: [(&str, Alone); 2] = [("peaks", peaks), ("large", large)];
    for (name, check) in alone {
        let (ignored, device) = (device.is_none(), device.clone());
        let run = move || check(&device.ok_or(NO_DEVICE)?);
        trials.push(Trial::test(name, run).with_ignored_flag(ignored));
    }
    libtest_mimic::run(&arguments, trials).exit();
}
