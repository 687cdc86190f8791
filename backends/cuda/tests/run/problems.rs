//! Problems of every kind of kernel, on shapes that hurt.

use fuseplan_api::*;

use crate::winograd;

const HALO_MMA: &str = "cuda.conv_halo_mma.v1";
const RUNS: &str = "cuda.conv_wgmma_runs.v1";
pub(crate) const GEMV: &str = "cuda.conv_gemv.v1";
pub(crate) const TRAINING: &str = "cuda.batch_norm_training.v1";

/// Each kind of kernel with what may stand behind it: name, solver, problem.
pub(crate) fn problems() -> Vec<(&'static str, &'static str, Problem)> {
    use BatchNormMode::{PerActivation, Spatial};
    use DataType::{BFloat16, Float, Half};
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
    let volume = |taps: [usize; 3], pads: [usize; 3]| {
        let input = TensorDescriptor::with_layout(Half, Ncdhw, &[2, 40, 4, 9, 24]).unwrap();
        let weights = [&[72, 40][..], &taps].concat();
        let weights = TensorDescriptor::with_layout(Half, Ncdhw, &weights).unwrap();
        let conv = ConvolutionDescriptor::d3().with_pads(pads).unwrap();
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
    // Groups whose windows go by, of images narrower than a warp's columns, and of channels that leave warps idle, or half of one.
    let columns =
        |data_type, channels: usize, stride: usize, behind: &dyn Fn(TensorDescriptor) -> Vec<Op>| {
            let of = |lens: &[usize]| TensorDescriptor::with_layout(data_type, Nhwc, lens).unwrap();
            let all = if channels == 16 { 80 } else { 88 };
            let (input, weights) = (of(&[5, all, 13, 11]), of(&[all, channels, 3, 3]));
            let conv =
                ConvolutionDescriptor::d2().with_pads([1, 1]).unwrap().with_groups(all / channels).unwrap();
            let conv = conv.with_strides([stride; 2]).unwrap();
            let output = conv.forward_output(&input, &weights).unwrap();
            let ops = [vec![Op::ConvForward { conv, weights }], behind(output)].concat();
            Problem { input, output, ops, math: MathMode::AllowTf32 }
        };
    let mut all = vec![
        ("columns.16", HALO_MMA, columns(Half, 16, 2, &chain)),
        ("columns.16.bf16", HALO_MMA, columns(BFloat16, 16, 1, &chain)),
        ("columns.8", HALO_MMA, columns(Half, 8, 1, &|_| norm(Spatial))),
        ("columns.4", HALO_MMA, columns(Half, 4, 2, &chain)),
        ("columns.tf32.16", HALO_MMA, columns(Float, 16, 2, &chain)),
        ("columns.tf32.16.whole", HALO_MMA, columns(Float, 16, 1, &chain)),
        ("columns.tf32.8", HALO_MMA, columns(Float, 8, 1, &|_| norm(Spatial))),
        ("columns.tf32.8.strided", HALO_MMA, columns(Float, 8, 2, &chain)),
        ("columns.tf32.4", HALO_MMA, columns(Float, 4, 1, &chain)),
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
        ("wgmma.gather.groups", "cuda.conv_wgmma_gather.v1", conv(Half, Nchw, 32, 4, &chain)),
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
        ("wgmma.transposed.volume", "cuda.conv_wgmma_transposed.v1", volume([3; 3], [0, 1, 1])),
        (
            "wgmma.transposed.valid",
            "cuda.conv_wgmma_transposed.v1",
            runs_of_halves(&[2, 40, 12, 72], 3, 1, [0, 1, 1]),
        ),
        (
            "wgmma.transposed.wide",
            "cuda.conv_wgmma_transposed.v1",
            runs_of_halves(&[2, 40, 12, 56], 5, 1, [2, 1, 1]),
        ),
        // As many lines as an H200 has multiprocessors, each of 31 times eight columns, an odd number, in four boxes.
        (
            "wgmma.transposed.long",
            "cuda.conv_wgmma_transposed.v1",
            runs_of_halves(&[1, 40, 132, 232], 3, 1, [1, 1, 1]),
        ),
        ("wgmma.transposed.bf16", "cuda.conv_wgmma_transposed.v1", convolved(BFloat16, Nchw)),
        ("wgmma.reordered", "cuda.conv_wgmma_reordered.v1", wide(1, [9, 16], &chain)),
        ("wgmma.reordered.odd", "cuda.conv_wgmma_reordered.v1", convolved(Half, Nchw)),
        (
            "wgmma.reordered.groups",
            "cuda.conv_wgmma_reordered.v1",
            wide(2, [9, 15], &|_| norm(PerActivation)),
        ),
        ("wgmma.reordered.volume", "cuda.conv_wgmma_reordered.v1", volume([3; 3], [0, 1, 1])),
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
        // Less deep than a step.
        ("wgmma.runs16.shallow", RUNS, words(&[9, 24, 17, 15], 1, 1, 0)),
        ("wgmma.runs16.shallow.two", RUNS, words(&[9, 40, 14, 14], 1, 1, 0)),
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
        ("wgmma.runs16.column", RUNS, volume([3, 1, 1], [1, 0, 0])),
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
