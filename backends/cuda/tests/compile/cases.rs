//! The kernels that are compiled: each kind, with what may stand behind it.

use fuseplan_api::*;

use crate::problems::{chain, conv, depthwise, element_wise, norm_relu, strided, training};

/// The solvers for Hopper alone.
pub(crate) const WGMMA: &str = "cuda.conv_wgmma.v1";
pub(crate) const PLANES: &str = "cuda.conv_wgmma_planes.v1";
pub(crate) const LINES: &str = "cuda.conv_wgmma_lines.v1";
pub(crate) const TRANSPOSED: &str = "cuda.conv_wgmma_transposed.v1";
pub(crate) const REORDERED: &str = "cuda.conv_wgmma_reordered.v1";
pub(crate) const RUNS: &str = "cuda.conv_wgmma_runs.v1";
pub(crate) const GATHER: &str = "cuda.conv_wgmma_gather.v1";

/// That for few pixels.
const GEMV: &str = "cuda.conv_gemv.v1";

/// Winograd's.
pub(crate) const WINOGRAD: &str = "cuda.conv_winograd.v1";

/// Those for narrow groups.
pub(crate) const HALO_MMA: &str = "cuda.conv_halo_mma.v1";
const HALO_FFMA: &str = "cuda.conv_halo_ffma.v1";

/// Name, solver, problem, instructions that must be there on a tensor-core kernel.
pub(crate) type Case = (&'static str, &'static str, Problem, &'static [&'static str]);

/// The same with TF32 allowed.
fn tf32(problem: Problem) -> Problem {
    Problem { math: MathMode::AllowTf32, ..problem }
}

/// The convolution of a problem alone, with other paddings before and after each dimension, and with a stride.
fn padded(problem: Problem, before: &[usize], after: &[usize], stride: usize) -> Problem {
    let Some((conv, &weights)) = problem.conv() else { panic!("{problem:?} has no convolution") };
    let conv = conv.with_asymmetric_pads(before, after).unwrap();
    let conv = conv.with_strides(vec![stride; before.len()]).unwrap();
    let output = conv.forward_output(&problem.input, &weights).unwrap();
    Problem { output, ops: vec![Op::ConvForward { conv, weights }], ..problem }
}

/// Batch-norm for inference and ReLU.
fn normed(layout: TensorLayout, data_type: DataType, lens: [usize; 4], mode: BatchNormMode) -> Problem {
    element_wise(data_type, layout, lens, norm_relu(mode))
}

/// A residual and ReLU behind a convolution with 1024 filters of 64 square images.
fn residual(data_type: DataType, layout: TensorLayout, extent: usize) -> Vec<Op> {
    let bias = TensorDescriptor::with_layout(data_type, layout, &[64, 1024, extent, extent]).unwrap();
    vec![Op::BiasForward { bias }, Op::ActivationForward { mode: ActivationMode::Relu }]
}

/// A bias of f32, batch-norms with parameters of the tensors' type, and PReLUs with slopes of both.
fn parameters(data_type: DataType, output: &[usize; 4]) -> Vec<Op> {
    let bias = TensorDescriptor::nchw(DataType::Float, [1, output[1], 1, 1]).unwrap();
    let norm = |mode| Op::BatchNormInference { mode, params: data_type };
    vec![
        Op::BiasForward { bias },
        norm(BatchNormMode::Spatial),
        Op::PReluForward { slope: bias },
        norm(BatchNormMode::PerActivation),
        Op::PReluForward { slope: TensorDescriptor::nchw(data_type, [1, 1, 1, 1]).unwrap() },
    ]
}

/// An image of the training cases.
pub(crate) const TRAINED: [usize; 4] = [64, 16, 27, 25];
/// One of so many pixels and so few channels that all multiprocessors share the sums.
const FEW_CHANNELS: [usize; 4] = [64, 64, 56, 56];

pub(crate) fn cases() -> Vec<Case> {
    use DataType::*;
    use TensorLayout::*;
    let relu = |lens: &[usize], data_type, layout| chain(lens, data_type, layout, ActivationMode::Relu);
    let (x, y) = (&[32, 64, 56, 56], &[32, 128, 56, 56]);
    let mma: &[&str] = &["HMMA", "LDSM", "LDGSTS"];
    let gather: &[&str] = &["HGMMA", "UTMALDG.2D", "LDG.E.U16", "USETMAXREG", "STG.E.128"];
    let copied: &[&str] = &["HGMMA", "UTMALDG.2D", "USETMAXREG", "!UTMALDG.3D", "LDGSTS.E.64"];
    // Rows of the product are in registers.
    let runs: &[&str] = &["HGMMA", "UTMALDG.3D", "UBLKCP", "USETMAXREG", "LDS"];
    let runs_by_four: &[&str] = &["HGMMA", "UTMALDG.3D", "UBLKCP", "USETMAXREG", "LDS", "STG.E.64"];
    let runs_of_planes: &[&str] = &["HGMMA", "!UTMALDG", "UBLKCP", "USETMAXREG", "LDS"];
    let runs_of_channels: &[&str] = &["HGMMA", "UTMALDG.1D", "UBLKCP", "USETMAXREG", "LDS"];
    let packed: &[&str] = &["HGMMA", "UTMALDG.2D", "UBLKCP", "USETMAXREG", "LDS.U16", "STG.E.U16"];
    let images: &[&str] =
        &["HGMMA", "UTMALDG.2D", "UBLKCP", "USETMAXREG", "LDS.U16", "STG.E.128", "!STG.E.U16"];
    let pairs: &[&str] = &["HGMMA", "UTMALDG.2D", "UBLKCP", "USETMAXREG", "!LDS.U16"];
    let quads: &[&str] = &["HGMMA", "UTMALDG.2D", "UBLKCP", "USETMAXREG", "LDS.64", "STG.E.128", "!LDS.U16"];
    let planes: &[&str] = &["HGMMA", "UTMALDG.3D", "UTMALDG.2D", "USETMAXREG", "STG.E.128"];
    let lines: &[&str] = &["HGMMA", "UTMALDG.5D", "USETMAXREG", "SHFL.IDX", "STG.E.128"];
    // Filters are prepared, and come by bulk copies.
    let streamed: &[&str] =
        &["HGMMA", "UTMALDG.5D", "UBLKCP", "USETMAXREG", "SHFL.IDX", "STG.E.128", "LDG.E.U16"];
    // Pixels are transposed by threads.
    let transposed: &[&str] =
        &["HGMMA", "UTMALDG", "UBLKCP", "LDSM.16.MT88.4", "STS", "USETMAXREG", "STG.E.128"];
    let (few, cluster): (&[usize], &[&str]) = (&[1, 512, 7, 7], &["HGMMA", "UCGABAR_ARV"]);
    let split_windows: &[&str] = &["HGMMA", "UTMALDG.4D", "!IM2COL", "UCGABAR_ARV"];
    let split_im2col: &[&str] = &["HGMMA", "UTMALDG.4D.IM2COL", "UCGABAR_ARV"];
    let plus_residual = vec![
        Op::BiasForward { bias: TensorDescriptor::with_layout(BFloat16, Nhwc, few).unwrap() },
        Op::ActivationForward { mode: ActivationMode::Relu },
    ];
    let windows: &[&str] = &["HGMMA", "UTMALDG.4D", "!IM2COL", "USETMAXREG"];
    let wgmma: &[&str] = &["HGMMA", "UTMALDG.4D.IM2COL", "UTMALDG.4D", "USETMAXREG", "STG.E.128"];
    let tf32_gather: &[&str] = &["HGMMA", "TF32", "UTMALDG.2D", "USETMAXREG", "STG.E.128"];
    let wgmma_tf32x3: &[&str] = &["HGMMA", "TF32", "LDS.128", "UTMALDG.4D.IM2COL", "STG.E.128"];
    let deep = &[64, 256, 14, 14];
    let winograd: &[&str] = &["FFMA", "LDGSTS.E.BYPASS.128", "LDS.128", "STG.E.128", "!HMMA"];
    let odd = |layout| conv(Float, layout, &[3, 37, 13, 11], 45, 3, 1, relu(&[3, 45, 13, 11], Float, layout));
    vec![
        ("winograd", WINOGRAD, conv(Float, Nchw, x, 128, 3, 1, relu(y, Float, Nchw)), winograd),
        ("winograd.nhwc", WINOGRAD, conv(Float, Nhwc, x, 128, 3, 1, relu(y, Float, Nhwc)), &winograd[..3]),
        (
            "winograd.residual",
            WINOGRAD,
            conv(Float, Nchw, &[64, 64, 14, 14], 1024, 3, 1, residual(Float, Nchw, 14)),
            &winograd[..1],
        ),
        ("winograd.odd", WINOGRAD, odd(Nchw), &winograd[..1]),
        ("winograd.odd.nhwc", WINOGRAD, odd(Nhwc), &winograd[..1]),
        ("wgmma.tf32", WGMMA, tf32(conv(Float, Nhwc, x, 128, 3, 1, relu(y, Float, Nhwc))), windows),
        ("wgmma.tf32.1x1", WGMMA, tf32(conv(Float, Nhwc, x, 128, 1, 1, relu(y, Float, Nhwc))), wgmma),
        ("wgmma.tf32.groups", WGMMA, tf32(conv(Float, Nhwc, &[8, 128, 28, 28], 512, 3, 4, vec![])), wgmma),
        (
            "split.wgmma.tf32",
            WGMMA,
            tf32(strided(Float, Nhwc, &[1, 512, 14, 14], 512, 3, 1, 2, vec![])),
            split_im2col,
        ),
        ("split.windows.tf32", WGMMA, tf32(conv(Float, Nhwc, few, 512, 3, 1, vec![])), split_windows),
        (
            "wgmma_gather.tf32",
            GATHER,
            tf32(conv(Float, Nchw, x, 128, 3, 1, relu(y, Float, Nchw))),
            tf32_gather,
        ),
        ("wgmma_gather.tf32.1x1", GATHER, tf32(conv(Float, Nchw, deep, 1024, 1, 1, vec![])), tf32_gather),
        ("split.gather.tf32", GATHER, tf32(conv(Float, Nchw, few, 512, 3, 1, vec![])), cluster),
        ("wgmma.tf32x3", WGMMA, conv(Float, Nhwc, x, 128, 3, 1, relu(y, Float, Nhwc)), wgmma_tf32x3),
        (
            "wgmma.tf32x3.c256k1024",
            WGMMA,
            conv(Float, Nhwc, deep, 1024, 1, 1, residual(Float, Nhwc, 14)),
            wgmma_tf32x3,
        ),
        ("wgmma.tf32x3.1x1", WGMMA, conv(Float, Nhwc, &[64, 64, 56, 56], 256, 1, 1, vec![]), wgmma_tf32x3),
        ("wgmma.tf32x3.k64", WGMMA, conv(Float, Nhwc, x, 64, 3, 1, vec![]), wgmma_tf32x3),
        ("wgmma.tf32x3.c16k48", WGMMA, conv(Float, Nhwc, &[8, 16, 30, 30], 48, 3, 1, vec![]), wgmma_tf32x3),
        (
            "wgmma.tf32x3.c8k24",
            WGMMA,
            conv(Float, Nhwc, &[8, 8, 30, 30], 24, 3, 1, vec![]),
            &["HGMMA", "TF32"],
        ),
        ("wgmma.tf32x3.groups", WGMMA, conv(Float, Nhwc, &[8, 128, 28, 28], 512, 3, 4, vec![]), wgmma_tf32x3),
        (
            "wgmma.tf32x3.ndhwc",
            WGMMA,
            conv(Float, Ndhwc, &[2, 32, 8, 20, 20], 64, 3, 1, vec![]),
            &["HGMMA", "TF32"],
        ),
        ("wgmma.tf32x3.parameters", WGMMA, conv(Float, Nhwc, x, 128, 3, 1, parameters(Float, y)), &["HGMMA"]),
        ("runs.tf32", RUNS, tf32(conv(Float, Nchw, x, 128, 3, 1, relu(y, Float, Nchw))), runs),
        ("runs.tf32.1x1", RUNS, tf32(conv(Float, Nchw, x, 128, 1, 1, relu(y, Float, Nchw))), runs),
        (
            "runs.tf32.channels",
            RUNS,
            tf32(conv(Float, Nchw, &[64, 64, 55, 55], 64, 3, 1, vec![])),
            runs_of_channels,
        ),
        (
            "runs.tf32.planes",
            RUNS,
            tf32(conv(Float, Nchw, &[64, 512, 7, 7], 512, 3, 1, vec![])),
            runs_of_channels,
        ),
        (
            "runs.tf32.parameters",
            RUNS,
            tf32(conv(Float, Nchw, &[32, 40, 56, 56], 128, 1, 1, parameters(Float, y))),
            runs,
        ),
        (
            "runs.tf32.ncdhw",
            RUNS,
            tf32(conv(Float, Ncdhw, &[2, 24, 8, 20, 20], 48, 3, 1, relu(&[2, 48, 8, 20, 20], Float, Ncdhw))),
            runs,
        ),
        (
            "runs.tf32.strided",
            RUNS,
            tf32(strided(Float, Nchw, &[64, 64, 56, 56], 128, 3, 1, 2, vec![])),
            runs,
        ),
        ("runs.f16", RUNS, conv(Half, Nchw, &[64, 128, 28, 28], 128, 3, 1, vec![]), runs),
        ("runs.f16.two", RUNS, conv(Half, Nchw, deep, 256, 3, 1, residual(Half, Nchw, 14)), runs),
        ("runs.f16.eight", RUNS, conv(Half, Nchw, &[64, 64, 55, 55], 64, 3, 1, vec![]), runs),
        ("runs.f16.planes", RUNS, conv(Half, Nchw, &[64, 512, 7, 7], 512, 3, 1, vec![]), runs_of_planes),
        ("runs.f16.1x1", RUNS, conv(Half, Nchw, &[64, 64, 55, 55], 256, 1, 1, vec![]), runs),
        ("runs.f16.1x1.even", RUNS, conv(Half, Nchw, deep, 1024, 1, 1, vec![]), runs),
        (
            "runs.f16.planes.residual.own",
            RUNS,
            conv(Half, Nchw, &[64, 64, 7, 7], 1024, 1, 2, residual(Half, Nchw, 7)),
            runs_of_planes,
        ),
        ("runs.f16.four", RUNS, conv(Half, Nchw, deep, 256, 3, 1, vec![]), runs_by_four),
        ("runs.bf16.four", RUNS, conv(BFloat16, Nchw, deep, 256, 3, 1, vec![]), runs_by_four),
        ("runs.bf16.1x1", RUNS, conv(BFloat16, Nchw, &[64, 256, 55, 55], 64, 1, 1, vec![]), runs),
        ("runs.f16.5x5", RUNS, conv(Half, Nchw, &[16, 96, 27, 27], 256, 5, 1, vec![]), runs),
        ("runs.f16.strided", RUNS, strided(Half, Nchw, &[64, 64, 55, 55], 128, 3, 1, 2, vec![]), runs),
        ("runs.f16.ncdhw", RUNS, conv(Half, Ncdhw, &[2, 32, 8, 21, 21], 64, 3, 1, vec![]), runs),
        ("runs.bf16.groups", RUNS, conv(BFloat16, Nchw, &[8, 128, 27, 27], 256, 3, 4, vec![]), runs),
        (
            "runs.bf16.parameters",
            RUNS,
            conv(BFloat16, Nchw, &[32, 40, 56, 56], 128, 3, 1, parameters(BFloat16, y)),
            runs,
        ),
        ("runs.tf32x3", RUNS, conv(Float, Nchw, x, 128, 3, 1, relu(y, Float, Nchw)), runs),
        ("runs.tf32x3.1x1", RUNS, conv(Float, Nchw, x, 256, 1, 1, vec![]), runs),
        (
            "runs.tf32x3.channels",
            RUNS,
            conv(Float, Nchw, &[64, 64, 55, 55], 64, 3, 1, vec![]),
            runs_of_channels,
        ),
        (
            "runs.tf32x3.planes",
            RUNS,
            conv(Float, Nchw, &[64, 512, 7, 7], 1024, 3, 1, residual(Float, Nchw, 7)),
            runs_of_channels,
        ),
        ("runs.tf32.groups", RUNS, tf32(conv(Float, Nchw, x, 128, 3, 4, relu(y, Float, Nchw))), runs),
        ("wgmma_gather.tf32x3", GATHER, conv(Float, Nchw, x, 128, 3, 1, relu(y, Float, Nchw)), tf32_gather),
        (
            "wgmma_gather.tf32x3.1x1",
            GATHER,
            conv(Float, Nchw, deep, 1024, 1, 1, residual(Float, Nchw, 14)),
            tf32_gather,
        ),
        ("wgmma_gather.tf32x3.k64", GATHER, conv(Float, Nchw, x, 64, 3, 1, vec![]), tf32_gather),
        (
            "wgmma_gather.tf32x3.parameters",
            GATHER,
            conv(Float, Nchw, x, 128, 3, 1, parameters(Float, y)),
            &["HGMMA"],
        ),
        ("split.gather.tf32x3", GATHER, conv(Float, Nchw, few, 512, 3, 1, vec![]), cluster),
        ("wgmma.tf32x3.k5", WGMMA, conv(Float, Nhwc, &[2, 24, 9, 11], 5, 3, 1, vec![]), &["HGMMA"]),
        ("split.wgmma.tf32x3", WGMMA, conv(Float, Nhwc, few, 512, 3, 1, vec![]), cluster),
        ("wgmma.f16.residual", WGMMA, conv(Half, Nhwc, deep, 1024, 1, 1, residual(Half, Nhwc, 14)), wgmma),
        (
            "wgmma.tf32.residual",
            WGMMA,
            tf32(conv(Float, Nhwc, deep, 1024, 1, 1, residual(Float, Nhwc, 14))),
            wgmma,
        ),
        (
            "wgmma_gather.f16.residual",
            GATHER,
            conv(Half, Nchw, &[64, 256, 14, 14], 1024, 1, 1, residual(Half, Nchw, 14)),
            &["HGMMA", "UBLKPF"],
        ),
        ("wgmma.f16", WGMMA, conv(Half, Nhwc, x, 128, 3, 1, relu(y, Half, Nhwc)), windows),
        ("wgmma.bf16.k64", WGMMA, conv(BFloat16, Nhwc, x, 64, 1, 1, vec![]), wgmma),
        (
            "wgmma.f16.tanh",
            WGMMA,
            conv(
                Half,
                Nhwc,
                &[64, 512, 7, 7],
                2048,
                1,
                1,
                chain(&[64, 2048, 7, 7], Half, Nhwc, ActivationMode::Tanh),
            ),
            wgmma,
        ),
        (
            "wgmma.bf16.c24k20",
            WGMMA,
            strided(BFloat16, Nhwc, &[2, 24, 9, 11], 20, 3, 1, 2, vec![]),
            &["HGMMA", "UTMALDG.4D.IM2COL"],
        ),
        ("gather.f16", GATHER, conv(Half, Nchw, x, 128, 3, 1, relu(y, Half, Nchw)), gather),
        ("gather.bf16.k64", GATHER, conv(BFloat16, Nchw, x, 64, 1, 1, vec![]), gather),
        (
            "gather.f16.tanh",
            GATHER,
            conv(
                Half,
                Nchw,
                &[64, 512, 7, 7],
                2048,
                1,
                1,
                chain(&[64, 2048, 7, 7], Half, Nchw, ActivationMode::Tanh),
            ),
            &["HGMMA", "UTMALDG.2D", "LDG.E.U16"],
        ),
        (
            "gather.f16.ncdhw",
            GATHER,
            conv(Half, Ncdhw, &[2, 24, 8, 20, 20], 48, 3, 1, relu(&[2, 48, 8, 20, 20], Half, Ncdhw)),
            gather,
        ),
        ("planes.f16", PLANES, conv(Half, Nchw, x, 128, 1, 1, relu(y, Half, Nchw)), planes),
        ("planes.bf16.k64", PLANES, conv(BFloat16, Nchw, &[64, 256, 56, 56], 64, 1, 1, vec![]), planes),
        ("planes.f16.ragged", PLANES, conv(Half, Nchw, &[64, 128, 28, 28], 512, 1, 1, vec![]), planes),
        (
            "planes.f16.residual",
            PLANES,
            conv(Half, Nchw, &[64, 256, 16, 16], 1024, 1, 1, residual(Half, Nchw, 16)),
            // The residual is read before the main loop.
            &["HGMMA", "UTMALDG.3D", "!UBLKPF"],
        ),
        ("planes.bf16.c24k20", PLANES, conv(BFloat16, Nchw, &[2, 24, 4, 6], 20, 1, 1, vec![]), planes),
        ("planes.f16.groups", PLANES, conv(Half, Nchw, &[8, 96, 28, 28], 200, 1, 2, vec![]), planes),
        (
            "planes.bf16.ncdhw",
            PLANES,
            conv(
                BFloat16,
                Ncdhw,
                &[2, 96, 3, 20, 20],
                192,
                1,
                1,
                relu(&[2, 192, 3, 20, 20], BFloat16, Ncdhw),
            ),
            planes,
        ),
        (
            "planes.bf16.parameters",
            PLANES,
            conv(BFloat16, Nchw, x, 128, 1, 1, parameters(BFloat16, y)),
            planes,
        ),
        (
            "planes.f16.tanh",
            PLANES,
            conv(
                Half,
                Nchw,
                &[64, 512, 8, 8],
                2048,
                1,
                1,
                chain(&[64, 2048, 8, 8], Half, Nchw, ActivationMode::Tanh),
            ),
            planes,
        ),
        (
            "planes.f16.c130",
            PLANES,
            conv(Half, Nchw, &[8, 130, 40, 40], 96, 1, 1, vec![]),
            &["HGMMA", "UTMALDG.3D"],
        ),
        ("planes.f16.copied", PLANES, conv(Half, Nchw, &[64, 256, 30, 30], 128, 1, 1, vec![]), copied),
        ("planes.bf16.copied.few", PLANES, conv(BFloat16, Nchw, &[1, 72, 30, 30], 40, 1, 1, vec![]), copied),
        (
            "planes.f16.copied.residual",
            PLANES,
            conv(Half, Nchw, &[64, 512, 14, 14], 1024, 1, 1, residual(Half, Nchw, 14)),
            copied,
        ),
        (
            "planes.bf16.copied.parameters",
            PLANES,
            conv(BFloat16, Nchw, &[8, 512, 14, 14], 256, 1, 1, parameters(BFloat16, &[8, 256, 14, 14])),
            copied,
        ),
        (
            "planes.f16.copied.c130",
            PLANES,
            conv(Half, Nchw, &[8, 130, 30, 30], 96, 1, 1, vec![]),
            &["HGMMA", "USETMAXREG", "LDGSTS.E.64", "!UTMALDG"],
        ),
        ("planes.f16.copied.groups", PLANES, conv(Half, Nchw, &[8, 128, 30, 30], 128, 1, 2, vec![]), copied),
        ("planes.f16.packed", PLANES, conv(Half, Nchw, &[64, 2048, 7, 7], 512, 1, 1, vec![]), images),
        (
            "planes.f16.packed.wide",
            PLANES,
            conv(Half, Nchw, &[64, 512, 7, 7], 2048, 1, 1, relu(&[64, 2048, 7, 7], Half, Nchw)),
            packed,
        ),
        (
            "runs.f16.1x1.wide",
            RUNS,
            conv(Half, Nchw, &[64, 64, 55, 55], 256, 1, 1, relu(&[64, 256, 55, 55], Half, Nchw)),
            runs,
        ),
        (
            "runs.f16.relu",
            RUNS,
            conv(Half, Nchw, &[64, 256, 14, 14], 256, 3, 1, relu(&[64, 256, 14, 14], Half, Nchw)),
            runs,
        ),
        (
            "planes.bf16.packed.relu",
            PLANES,
            conv(BFloat16, Nchw, &[64, 512, 7, 7], 2048, 1, 1, relu(&[64, 2048, 7, 7], BFloat16, Nchw)),
            packed,
        ),
        ("planes.f16.packed.pairs", PLANES, conv(Half, Nchw, &[64, 512, 6, 7], 200, 1, 1, vec![]), pairs),
        ("planes.f16.packed.quads", PLANES, conv(Half, Nchw, &[64, 1024, 14, 14], 256, 1, 1, vec![]), quads),
        ("planes.bf16.packed", PLANES, conv(BFloat16, Nchw, &[64, 2048, 7, 7], 512, 1, 1, vec![]), images),
        (
            "planes.bf16.packed.pairs",
            PLANES,
            conv(BFloat16, Nchw, &[64, 512, 6, 7], 200, 1, 1, vec![]),
            pairs,
        ),
        (
            "planes.bf16.packed.quads",
            PLANES,
            conv(BFloat16, Nchw, &[64, 1024, 14, 14], 256, 1, 1, vec![]),
            quads,
        ),
        ("planes.f16.packed.tail", PLANES, conv(Half, Nchw, &[70, 520, 5, 5], 130, 1, 1, vec![]), packed),
        ("planes.f16.packed.groups", PLANES, conv(Half, Nchw, &[8, 128, 9, 9], 200, 1, 2, vec![]), packed),
        (
            "planes.f16.packed.residual",
            PLANES,
            conv(Half, Nchw, &[64, 512, 7, 7], 1024, 1, 1, residual(Half, Nchw, 7)),
            &["HGMMA", "UBLKCP", "LDS.U16", "STG.E.U16", "UBLKPF"],
        ),
        (
            "planes.bf16.packed.parameters",
            PLANES,
            conv(BFloat16, Nchw, &[8, 512, 7, 7], 256, 1, 1, parameters(BFloat16, &[8, 256, 7, 7])),
            &["HGMMA", "UBLKCP", "LDS.U16", "STG.E.U16"],
        ),
        ("split.planes.packed", PLANES, conv(Half, Nchw, &[1, 2048, 7, 7], 512, 1, 1, vec![]), cluster),
        ("lines.f16", LINES, conv(Half, Nchw, x, 128, 3, 1, relu(y, Half, Nchw)), lines),
        ("lines.bf16.160", LINES, conv(BFloat16, Nchw, &[16, 64, 160, 160], 64, 3, 1, vec![]), lines),
        ("lines.f16.c128", LINES, conv(Half, Nchw, &[16, 128, 80, 80], 128, 3, 1, vec![]), lines),
        ("lines.f16.5x5", LINES, conv(Half, Nchw, &[2, 48, 32, 32], 64, 5, 1, vec![]), lines),
        ("lines.f16.c20k20", LINES, conv(Half, Nchw, &[2, 20, 17, 24], 20, 3, 1, vec![]), lines),
        ("lines.bf16.parameters", LINES, conv(BFloat16, Nchw, x, 128, 3, 1, parameters(BFloat16, y)), lines),
        (
            "lines.f16.c512",
            LINES,
            conv(Half, Nchw, &[1, 512, 64, 64], 512, 3, 1, relu(&[1, 512, 64, 64], Half, Nchw)),
            streamed,
        ),
        ("lines.bf16.c200k130", LINES, conv(BFloat16, Nchw, &[2, 200, 17, 24], 130, 3, 1, vec![]), streamed),
        ("lines.f16.c272.groups", LINES, conv(Half, Nchw, &[8, 544, 40, 40], 128, 3, 2, vec![]), streamed),
        (
            "transposed.f16",
            TRANSPOSED,
            conv(Half, Nchw, &[16, 128, 80, 80], 128, 3, 1, relu(&[16, 128, 80, 80], Half, Nchw)),
            transposed,
        ),
        (
            "transposed.bf16.ncdhw",
            TRANSPOSED,
            padded(conv(BFloat16, Ncdhw, &[1, 96, 6, 48, 832], 96, 3, 1, vec![]), &[0, 1, 1], &[0, 1, 1], 1),
            transposed,
        ),
        (
            "transposed.f16.groups",
            TRANSPOSED,
            conv(Half, Nchw, &[2, 64, 17, 24], 140, 5, 2, vec![]),
            transposed,
        ),
        (
            "reordered.f16",
            REORDERED,
            conv(Half, Nchw, &[64, 256, 14, 14], 256, 3, 1, relu(&[64, 256, 14, 14], Half, Nchw)),
            &["HGMMA", "UTMALDG.4D.IM2COL", "USETMAXREG", "STG.E.64", "LDG.E.U16", "STS"],
        ),
        (
            "reordered.bf16.ncdhw",
            REORDERED,
            padded(conv(BFloat16, Ncdhw, &[1, 96, 6, 48, 832], 96, 3, 1, vec![]), &[0, 1, 1], &[0, 1, 1], 1),
            &["HGMMA", "UTMALDG.5D.IM2COL", "STG.E.128"],
        ),
        (
            "reordered.tf32",
            REORDERED,
            tf32(conv(Float, Nchw, &[8, 37, 15, 15], 130, 3, 1, vec![])),
            &["HGMMA", "TF32", "UTMALDG.4D.IM2COL"],
        ),
        (
            "reordered.f16.few",
            REORDERED,
            conv(Half, Nchw, &[64, 32, 112, 112], 16, 1, 1, vec![]),
            &["HGMMA", "UTMALDG.4D.IM2COL"],
        ),
        (
            "reordered.tf32.residual",
            REORDERED,
            tf32(conv(Float, Nchw, &[64, 256, 14, 14], 1024, 1, 1, residual(Float, Nchw, 14))),
            &["HGMMA", "TF32", "UBLKPF"],
        ),
        (
            "gather.f16.residual",
            GATHER,
            conv(Half, Nchw, &[64, 256, 14, 14], 1024, 1, 1, residual(Half, Nchw, 14)),
            &["HGMMA", "UTMALDG.2D", "UBLKPF"],
        ),
        (
            "planes.f16.packed.residual",
            PLANES,
            conv(Half, Nchw, &[64, 2048, 7, 7], 1024, 1, 1, residual(Half, Nchw, 7)),
            &["HGMMA", "UBLKCP", "UBLKPF"],
        ),
        (
            "runs.tf32.residual",
            RUNS,
            tf32(conv(Float, Nchw, &[64, 256, 14, 14], 1024, 1, 1, residual(Float, Nchw, 14))),
            &["HGMMA", "TF32", "UBLKPF"],
        ),
        (
            "runs.f32.residual",
            RUNS,
            conv(Float, Nchw, &[64, 256, 14, 14], 1024, 1, 1, residual(Float, Nchw, 14)),
            &["HGMMA", "TF32", "UBLKPF"],
        ),
        ("split.reordered", REORDERED, conv(Half, Nchw, few, 512, 3, 1, vec![]), cluster),
        ("lines.f16.groups", LINES, conv(Half, Nchw, &[8, 128, 40, 40], 128, 3, 2, vec![]), lines),
        ("split.planes.copied", PLANES, conv(Half, Nchw, &[1, 1024, 14, 14], 256, 1, 1, vec![]), cluster),
        ("split.planes", PLANES, conv(Half, Nchw, &[1, 2048, 8, 8], 512, 1, 1, vec![]), cluster),
        ("windows.f16.64", WGMMA, conv(Half, Nhwc, &[8, 64, 160, 160], 64, 3, 1, vec![]), windows),
        (
            "windows.bf16.96.ndhwc",
            WGMMA,
            conv(BFloat16, Ndhwc, &[1, 96, 6, 96, 96], 96, 3, 1, vec![]),
            &["HGMMA", "UTMALDG.5D", "!IM2COL"],
        ),
        ("windows.tf32", WGMMA, tf32(conv(Float, Nhwc, &[8, 32, 160, 160], 32, 3, 1, vec![])), windows),
        ("windows.f16.5x5.c24k20", WGMMA, conv(Half, Nhwc, &[8, 24, 35, 35], 20, 5, 1, vec![]), windows),
        ("windows.f16.groups", WGMMA, conv(Half, Nhwc, &[8, 128, 56, 56], 128, 3, 4, vec![]), windows),
        (
            "windows.f16.groups.ragged",
            WGMMA,
            conv(Half, Nhwc, &[64, 224, 56, 56], 224, 3, 4, vec![]),
            &["HGMMA", "UTMALDG.5D", "UTMALDG.4D", "!IM2COL", "STG.E.128"],
        ),
        (
            "wgmma.f16.groups.ragged",
            WGMMA,
            strided(Half, Nhwc, &[64, 224, 112, 112], 224, 3, 4, 2, vec![]),
            &["HGMMA", "UTMALDG.5D.IM2COL", "UTMALDG.4D", "STG.E.128"],
        ),
        (
            "windows.f16.3x3x3.c96k3",
            WGMMA,
            conv(Half, Ndhwc, &[1, 96, 6, 480, 832], 3, 3, 1, vec![]),
            &["HGMMA.64x8x16", "UTMALDG.5D", "!IM2COL", "STG.E.U16"],
        ),
        (
            "windows.f16.parameters",
            WGMMA,
            conv(Half, Nhwc, &[32, 64, 56, 56], 64, 3, 1, parameters(Half, &[32, 64, 56, 56])),
            windows,
        ),
        ("wgmma.f16.parameters", WGMMA, conv(Half, Nhwc, x, 128, 3, 1, parameters(Half, y)), &["HGMMA"]),
        (
            "gather.bf16.parameters",
            GATHER,
            conv(BFloat16, Nchw, x, 128, 3, 1, parameters(BFloat16, y)),
            &["HGMMA"],
        ),
        (
            "mma.f16.parameters",
            "cuda.conv_mma.v1",
            conv(Half, Nhwc, x, 128, 3, 1, parameters(Half, y)),
            &["HMMA"],
        ),
        (
            "element_wise.bf16.parameters",
            "cuda.element_wise.v1",
            element_wise(BFloat16, Nchw, *x, parameters(BFloat16, x)),
            &[],
        ),
        ("gemv.f16.c4096k1000", GEMV, conv(Half, Nhwc, &[1, 4096, 1, 1], 1000, 1, 1, vec![]), &["LDG.E.128"]),
        (
            "gemv.f32.c960k240",
            GEMV,
            conv(Float, Nchw, &[8, 960, 1, 1], 240, 1, 1, relu(&[8, 240, 1, 1], Float, Nchw)),
            &["LDG.E.128", "FFMA"],
        ),
        ("gemv.bf16.c75k18", GEMV, conv(BFloat16, Nhwc, &[2, 75, 2, 2], 18, 1, 3, vec![]), &["LDG.E.U16"]),
        (
            "gemv.f16.7x7",
            GEMV,
            padded(conv(Half, Nchw, &[5, 24, 7, 7], 100, 7, 1, vec![]), &[0, 0], &[0, 0], 1),
            &["LDG.E.128"],
        ),
        // What these solvers can compute and are not preferred for.
        ("wgmma.f16.k3", WGMMA, conv(Half, Nhwc, &[2, 24, 9, 11], 3, 3, 1, vec![]), &["HGMMA"]),
        ("gather.f16.c8k5", GATHER, conv(Half, Nchw, &[2, 8, 9, 11], 5, 1, 1, vec![]), &["HGMMA"]),
        ("mma.f16.c2k3", "cuda.conv_mma.v1", conv(Half, Nhwc, &[2, 2, 9, 11], 3, 1, 1, vec![]), &["HMMA"]),
        ("halo_mma.f16.c64k64", HALO_MMA, conv(Half, Nhwc, x, 64, 3, 1, vec![]), &["HMMA", "STG.E.128"]),
        ("halo_ffma.f32.c16k96", HALO_FFMA, conv(Float, Nchw, &[2, 16, 30, 30], 96, 3, 1, vec![]), &[]),
        ("wgmma.f16.groups", WGMMA, strided(Half, Nhwc, &[8, 128, 28, 28], 512, 3, 4, 2, vec![]), wgmma),
        (
            "wgmma.f16.ndhwc",
            WGMMA,
            strided(Half, Ndhwc, &[2, 32, 8, 20, 20], 64, 3, 1, 2, relu(&[2, 64, 4, 10, 10], Half, Ndhwc)),
            &["HGMMA", "UTMALDG.5D.IM2COL", "STG.E.128"],
        ),
        ("mma.f16.nhwc", "cuda.conv_mma.v1", conv(Half, Nhwc, x, 128, 3, 1, relu(y, Half, Nhwc)), mma),
        ("mma.bf16.nhwc.k64", "cuda.conv_mma.v1", conv(BFloat16, Nhwc, x, 64, 1, 1, vec![]), mma),
        ("mma.f16.nchw", "cuda.conv_mma.v1", conv(Half, Nchw, x, 128, 3, 1, relu(y, Half, Nchw)), mma),
        (
            "mma.bf16.nhwc.stem",
            "cuda.conv_mma.v1",
            conv(BFloat16, Nhwc, &[8, 3, 224, 224], 64, 7, 1, vec![]),
            &["HMMA", "LDSM"],
        ),
        (
            "mma.f16.nchw.groups",
            "cuda.conv_mma.v1",
            conv(Half, Nchw, &[1, 64, 14, 14], 64, 3, 4, vec![]),
            mma,
        ),
        (
            "mma.f16.ndhwc",
            "cuda.conv_mma.v1",
            conv(Half, Ndhwc, &[2, 32, 8, 20, 20], 64, 3, 1, relu(&[2, 64, 8, 20, 20], Half, Ndhwc)),
            mma,
        ),
        (
            "mma.f16.nchw.runs",
            "cuda.conv_mma.v1",
            conv(Half, Nchw, &[64, 256, 28, 28], 1024, 1, 1, relu(&[64, 1024, 28, 28], Half, Nchw)),
            &["HMMA", "LDSM", "LDGSTS.E.BYPASS.128"],
        ),
        (
            "mma.bf16.nchw.odd",
            "cuda.conv_mma.v1",
            conv(BFloat16, Nchw, &[64, 512, 7, 7], 2048, 1, 1, vec![]),
            &["HMMA", "LDSM", "LDG.E.U16", "LDGSTS"],
        ),
        (
            "mma.f16.nhwc.narrow",
            "cuda.conv_mma.v1",
            conv(Half, Nhwc, &[8, 512, 28, 28], 512, 3, 32, vec![]),
            mma,
        ),
        (
            "mma.tf32.nhwc",
            "cuda.conv_mma.v1",
            tf32(conv(Float, Nhwc, x, 128, 3, 1, relu(y, Float, Nhwc))),
            &["HMMA.1688.F32.TF32", "LDSM", "LDGSTS"],
        ),
        (
            "mma.tf32.nchw",
            "cuda.conv_mma.v1",
            tf32(conv(Float, Nchw, x, 128, 3, 1, relu(y, Float, Nchw))),
            &["HMMA.1688.F32.TF32", "LDSM", "LDGSTS"],
        ),
        (
            "mma.tf32.nchw.runs",
            "cuda.conv_mma.v1",
            tf32(conv(Float, Nchw, &[64, 256, 28, 28], 1024, 1, 1, vec![])),
            &["HMMA.1688.F32.TF32", "LDSM", "LDGSTS.E.BYPASS.128"],
        ),
        (
            "ffma.f32.nchw.runs",
            "cuda.conv_ffma.v1",
            conv(Float, Nchw, &[64, 256, 28, 28], 1024, 1, 1, vec![]),
            &["FFMA", "LDG.E.128"],
        ),
        (
            "ffma.f32.nchw",
            "cuda.conv_ffma.v1",
            conv(Float, Nchw, x, 128, 3, 1, relu(y, Float, Nchw)),
            &["FFMA"],
        ),
        ("ffma.f32.nhwc", "cuda.conv_ffma.v1", conv(Float, Nhwc, x, 64, 1, 1, vec![]), &["FFMA"]),
        (
            "ffma.f16.nhwc",
            "cuda.conv_ffma.v1",
            conv(Half, Nhwc, &[1, 64, 14, 14], 64, 3, 1, vec![]),
            &["FFMA"],
        ),
        (
            "halo_mma.f16.nhwc.c4k8",
            HALO_MMA,
            conv(Half, Nhwc, &[64, 128, 56, 56], 256, 3, 32, relu(&[64, 256, 56, 56], Half, Nhwc)),
            &["HMMA.16816", "LDS.64", "LDGSTS", "STG.E.128"],
        ),
        (
            "halo_mma.bf16.nchw.c4k4",
            HALO_MMA,
            conv(BFloat16, Nchw, &[64, 128, 56, 56], 128, 3, 32, vec![]),
            &["HMMA.16816", "LDS.64", "LDG.E.U16", "STG.E.128"],
        ),
        (
            "columns.f16.c16k16",
            HALO_MMA,
            strided(Half, Nhwc, &[64, 512, 28, 28], 512, 3, 32, 2, relu(&[64, 512, 14, 14], Half, Nhwc)),
            &["HMMA.16816", "LDSM.16.M88.4", "LDGSTS", "STG.E.64"],
        ),
        (
            "columns.bf16.c8k8",
            HALO_MMA,
            conv(BFloat16, Nhwc, &[64, 256, 28, 28], 256, 3, 32, relu(&[64, 256, 28, 28], BFloat16, Nhwc)),
            &["HMMA.16816", "LDSM.16.M88.4", "LDGSTS", "SHFL", "STG.E.64"],
        ),
        (
            "columns.f16.c4k4",
            HALO_MMA,
            conv(Half, Nhwc, &[64, 128, 56, 56], 128, 3, 32, relu(&[64, 128, 56, 56], Half, Nhwc)),
            &["HMMA.16816", "LDS", "LDGSTS", "SHFL", "STG.E.64"],
        ),
        (
            "halo_mma.f16.nhwc.c16k32",
            HALO_MMA,
            conv(Half, Nhwc, &[64, 512, 14, 14], 1024, 3, 32, vec![]),
            // Four lanes write the sectors of 32 filters from where these are summed.
            &["HMMA.16816", "LDS.64", "LDGSTS", "STG.E.128"],
        ),
        (
            "halo_mma.f16.nhwc.c24k24",
            HALO_MMA,
            conv(Half, Nhwc, &[64, 768, 7, 7], 768, 3, 32, vec![]),
            &["HMMA.16816", "LDS.64", "LDGSTS", "STG.E.128"],
        ),
        (
            "columns.tf32.c16k16",
            HALO_MMA,
            tf32(strided(
                Float,
                Nhwc,
                &[64, 512, 28, 28],
                512,
                3,
                32,
                2,
                relu(&[64, 512, 14, 14], Float, Nhwc),
            )),
            &["HMMA.1688.F32.TF32", "LDSM.16.M88.4", "LDGSTS", "STG.E.128"],
        ),
        (
            "columns.tf32.c8k8",
            HALO_MMA,
            tf32(conv(Float, Nhwc, &[64, 256, 28, 28], 256, 3, 32, vec![])),
            &["HMMA.1688.F32.TF32", "LDSM.16.M88.4", "LDGSTS", "SHFL", "STG.E.128"],
        ),
        (
            "columns.tf32.c4k4",
            HALO_MMA,
            tf32(conv(Float, Nhwc, &[64, 128, 56, 56], 128, 3, 32, relu(&[64, 128, 56, 56], Float, Nhwc))),
            &["HMMA.1688.F32.TF32", "LDSM.16.M88.4", "LDGSTS", "SHFL", "STG.E.128"],
        ),
        (
            "halo_mma.tf32.nhwc.c24k24",
            HALO_MMA,
            tf32(conv(Float, Nhwc, &[64, 768, 14, 14], 768, 3, 32, vec![])),
            &["HMMA.1688.F32.TF32", "LDS.128", "LDGSTS", "STG.E.128"],
        ),
        (
            "halo_mma.f16.nhwc.k3",
            HALO_MMA,
            conv(Half, Nhwc, &[1, 96, 256, 256], 3, 3, 1, vec![]),
            &["HMMA.16816", "LDS.64", "LDGSTS"],
        ),
        (
            "halo_mma.bf16.nhwc.stem",
            HALO_MMA,
            conv(BFloat16, Nhwc, &[8, 3, 224, 224], 64, 7, 1, vec![]),
            &["HMMA.16816", "LDS.64", "LDG.E.U16", "STG.E.128"],
        ),
        (
            "halo_mma.f16.ncdhw.k3",
            HALO_MMA,
            conv(Half, Ncdhw, &[1, 96, 8, 64, 64], 3, 3, 1, vec![]),
            &["HMMA.16816", "LDS.64", "LDG.E.U16"],
        ),
        (
            "halo_ffma.f32.nhwc.c4k4",
            HALO_FFMA,
            conv(Float, Nhwc, &[64, 128, 56, 56], 128, 3, 32, relu(&[64, 128, 56, 56], Float, Nhwc)),
            &["FFMA", "LDS.128", "LDG.E.128", "STG.E.128"],
        ),
        (
            "halo_ffma.f32.nchw.c8k8",
            HALO_FFMA,
            conv(Float, Nchw, &[64, 256, 28, 28], 256, 3, 32, relu(&[64, 256, 28, 28], Float, Nchw)),
            &["FFMA", "LDS.128", "STG.E.128"],
        ),
        (
            "halo_ffma.f32.nhwc.c32k32",
            HALO_FFMA,
            conv(Float, Nhwc, &[8, 1024, 7, 7], 1024, 3, 32, vec![]),
            &["FFMA", "LDS.128", "LDG.E.128"],
        ),
        (
            "halo_ffma.f32.nchw.k3",
            HALO_FFMA,
            conv(Float, Nchw, &[1, 40, 256, 256], 3, 3, 1, vec![]),
            &["FFMA"],
        ),
        (
            "halo_ffma.f16.nhwc.c8k8",
            HALO_FFMA,
            conv(Half, Nhwc, &[8, 256, 28, 28], 256, 3, 32, vec![]),
            &["FFMA", "LDG.E.128"],
        ),
        // Padding that differs before and after: SAME of a stride of 2, a causal volume, padding behind a single tap.
        (
            "padded.wgmma.f16.same",
            WGMMA,
            padded(conv(Half, Nhwc, x, 128, 3, 1, vec![]), &[0; 2], &[1; 2], 2),
            &["HGMMA", "UTMALDG.4D.IM2COL"],
        ),
        (
            "padded.wgmma.bf16.causal",
            WGMMA,
            padded(conv(BFloat16, Ndhwc, &[2, 32, 8, 20, 20], 64, 3, 1, vec![]), &[2, 1, 1], &[0, 1, 1], 1),
            &["HGMMA", "UTMALDG.5D", "!IM2COL"],
        ),
        (
            "padded.wgmma.bf16.causal.strided",
            WGMMA,
            padded(conv(BFloat16, Ndhwc, &[2, 32, 8, 20, 20], 64, 3, 1, vec![]), &[2, 1, 1], &[0, 1, 1], 2),
            &["HGMMA", "UTMALDG.5D.IM2COL"],
        ),
        (
            "padded.gather.f16.1x1",
            GATHER,
            padded(conv(Half, Nchw, x, 128, 1, 1, vec![]), &[0; 2], &[1, 3], 1),
            &["HGMMA", "UTMALDG.2D"],
        ),
        (
            "padded.mma.f16.nchw.1x1",
            "cuda.conv_mma.v1",
            padded(conv(Half, Nchw, x, 128, 1, 1, vec![]), &[0; 2], &[1, 3], 1),
            &["HMMA", "LDSM"],
        ),
        (
            "padded.ffma.f32.nhwc.1x1",
            "cuda.conv_ffma.v1",
            padded(conv(Float, Nhwc, x, 64, 1, 1, vec![]), &[0; 2], &[0, 2], 1),
            &["FFMA"],
        ),
        (
            "padded.halo_mma.f16.ndhwc.1x1x1",
            HALO_MMA,
            padded(conv(Half, Ndhwc, &[2, 32, 8, 20, 20], 32, 1, 8, vec![]), &[0; 3], &[2, 0, 0], 1),
            &["HMMA.16816", "LDS.64"],
        ),
        (
            "padded.halo_ffma.f32.nchw.same",
            HALO_FFMA,
            padded(conv(Float, Nchw, &[8, 256, 28, 28], 256, 3, 32, vec![]), &[0; 2], &[1; 2], 2),
            &["FFMA"],
        ),
        (
            "padded.depthwise.f16.nhwc.same",
            "cuda.conv_depthwise.v1",
            padded(depthwise(Half, Nhwc, [64, 96, 56, 56], 1, 3, 2), &[0; 2], &[1; 2], 2),
            &["LDG.E.64", "STG.E.64"],
        ),
        (
            "padded.depthwise.f32.nchw",
            "cuda.conv_depthwise.v1",
            padded(depthwise(Float, Nchw, [64, 96, 56, 56], 1, 3, 1), &[2; 2], &[0; 2], 1),
            &["LDG.E.128", "STG.E.128"],
        ),
        // Deep products of few pixels: on Hopper, blocks read each other's shared memory.
        (
            "split.wgmma",
            WGMMA,
            strided(Half, Nhwc, &[1, 512, 14, 14], 512, 3, 1, 2, relu(few, Half, Nhwc)),
            split_im2col,
        ),
        ("split.windows", WGMMA, conv(Half, Nhwc, few, 512, 3, 1, relu(few, Half, Nhwc)), split_windows),
        ("split.windows.residual", WGMMA, conv(BFloat16, Nhwc, few, 512, 3, 1, plus_residual), split_windows),
        ("split.windows.k501", WGMMA, conv(Half, Nhwc, few, 501, 3, 1, vec![]), split_windows),
        (
            "split.windows.groups",
            WGMMA,
            conv(Half, Nhwc, &[1, 896, 7, 7], 896, 3, 2, vec![]),
            &["HGMMA", "!IM2COL", "UCGABAR_ARV"],
        ),
        (
            "split.windows.ndhwc",
            WGMMA,
            conv(Half, Ndhwc, &[1, 512, 3, 7, 7], 256, 3, 1, vec![]),
            &["HGMMA", "UTMALDG.5D", "!IM2COL", "UCGABAR_ARV"],
        ),
        (
            "split.gather",
            GATHER,
            conv(Half, Nchw, few, 512, 3, 1, relu(&[1, 512, 7, 7], Half, Nchw)),
            cluster,
        ),
        ("split.mma.f16.nhwc", "cuda.conv_mma.v1", conv(Half, Nhwc, few, 512, 3, 1, vec![]), mma),
        ("split.mma.f16.nchw", "cuda.conv_mma.v1", conv(Half, Nchw, few, 512, 1, 1, vec![]), &["HMMA"]),
        (
            "split.mma.f16.nchw.1x1",
            "cuda.conv_mma.v1",
            conv(Half, Nchw, &[1, 2048, 7, 7], 512, 1, 1, relu(few, Half, Nchw)),
            &["HMMA"],
        ),
        ("split.mma.tf32.nhwc", "cuda.conv_mma.v1", tf32(conv(Float, Nhwc, few, 512, 3, 1, vec![])), mma),
        ("split.mma.tf32.nchw", "cuda.conv_mma.v1", tf32(conv(Float, Nchw, few, 512, 3, 1, vec![])), mma),
        ("split.ffma.nhwc", "cuda.conv_ffma.v1", conv(Float, Nhwc, few, 512, 3, 1, vec![]), &["FFMA"]),
        ("split.ffma.nchw", "cuda.conv_ffma.v1", conv(Float, Nchw, few, 512, 1, 1, vec![]), &["FFMA"]),
        ("direct.f32", "cuda.direct.v1", conv(Float, Nchw, x, 128, 3, 1, relu(y, Float, Nhwc)), &["FFMA"]),
        ("direct.bf16.depthwise", "cuda.direct.v1", conv(BFloat16, Nhwc, x, 64, 3, 64, vec![]), &["FFMA"]),
        (
            "element_wise.f16.nchw",
            "cuda.element_wise.v1",
            normed(Nchw, Half, [64, 256, 55, 55], BatchNormMode::Spatial),
            &["LDG.E.128", "STG.E.128"],
        ),
        (
            "element_wise.f32.nhwc",
            "cuda.element_wise.v1",
            normed(Nhwc, Float, [64, 256, 55, 55], BatchNormMode::Spatial),
            &["LDG.E.128", "STG.E.128"],
        ),
        (
            "element_wise.f16.nhwc.residual",
            "cuda.element_wise.v1",
            element_wise(Half, Nhwc, [64, 256, 14, 14], relu(&[64, 256, 14, 14], Half, Nhwc)),
            &["LDG.E.128", "STG.E.128"],
        ),
        (
            "element_wise.bf16.nhwc.per_activation",
            "cuda.element_wise.v1",
            normed(Nhwc, BFloat16, [64, 256, 14, 14], BatchNormMode::PerActivation),
            &["LDG.E.128", "STG.E.128"],
        ),
        (
            "element_wise.f16.nchw.planes_of_196",
            "cuda.element_wise.v1",
            normed(Nchw, Half, [64, 1024, 14, 14], BatchNormMode::Spatial),
            &["LDG.E.128", "STG.E.128"],
        ),
        (
            "element_wise.f16.nchw.planes_of_49",
            "cuda.element_wise.v1",
            normed(Nchw, Half, [64, 512, 7, 7], BatchNormMode::Spatial),
            &["LDG.E.128", "STG.E.128"],
        ),
        (
            "element_wise.bf16.nchw.planes_of_6",
            "cuda.element_wise.v1",
            normed(Nchw, BFloat16, [64, 512, 2, 3], BatchNormMode::Spatial),
            &["LDG.E.128", "STG.E.128"],
        ),
        (
            "depthwise.f16.nhwc.3x3",
            "cuda.conv_depthwise.v1",
            depthwise(Half, Nhwc, [64, 96, 56, 56], 1, 3, 1),
            &["LDG.E.64", "STG.E.64"],
        ),
        (
            "depthwise.f32.nhwc.3x3s2",
            "cuda.conv_depthwise.v1",
            depthwise(Float, Nhwc, [64, 96, 56, 56], 1, 3, 2),
            &["LDG.E.128", "STG.E.128"],
        ),
        (
            "depthwise.bf16.nhwc.5x5",
            "cuda.conv_depthwise.v1",
            depthwise(BFloat16, Nhwc, [64, 240, 28, 28], 1, 5, 1),
            &["LDG.E.64", "STG.E.64"],
        ),
        (
            "depthwise.f32.nchw.3x3",
            "cuda.conv_depthwise.v1",
            depthwise(Float, Nchw, [64, 96, 56, 56], 1, 3, 1),
            &["LDG.E.128", "STG.E.128"],
        ),
        (
            "depthwise.f16.nchw.5x5s2",
            "cuda.conv_depthwise.v1",
            depthwise(Half, Nchw, [64, 144, 56, 56], 1, 5, 2),
            &["LDG.E.128", "STG.E.64"],
        ),
        (
            "depthwise.f16.nchw.planes_of_49",
            "cuda.conv_depthwise.v1",
            depthwise(Half, Nchw, [64, 960, 7, 7], 1, 3, 1),
            &["FFMA"],
        ),
        (
            "depthwise.f32.nchw.7x7",
            "cuda.conv_depthwise.v1",
            depthwise(Float, Nchw, [8, 96, 56, 56], 1, 7, 1),
            &["FFMA"],
        ),
        (
            "depthwise.f16.nhwc.13x13",
            "cuda.conv_depthwise.v1",
            depthwise(Half, Nhwc, [8, 96, 56, 56], 1, 13, 1),
            &["FFMA"],
        ),
        (
            "depthwise.bf16.nhwc.multiplier2",
            "cuda.conv_depthwise.v1",
            depthwise(BFloat16, Nhwc, [8, 32, 56, 56], 2, 3, 1),
            &["LDG.E.64", "STG.E.64"],
        ),
        // Filters that fill the shared memory that a kernel may declare.
        (
            "depthwise.f16.nhwc.14x14",
            "cuda.conv_depthwise.v1",
            depthwise(Half, Nhwc, [1, 64, 32, 32], 1, 14, 1),
            &["FFMA"],
        ),
        (
            "depthwise.f16.nhwc.7x7.multiplier4",
            "cuda.conv_depthwise.v1",
            depthwise(Half, Nhwc, [1, 64, 32, 32], 4, 7, 1),
            &["FFMA"],
        ),
        (
            "depthwise.f32.nhwc.16x16.multiplier8",
            "cuda.conv_depthwise.v1",
            depthwise(Float, Nhwc, [1, 64, 32, 32], 8, 16, 1),
            &["FFMA"],
        ),
        (
            "depthwise.bf16.nchw.10x10.few_places",
            "cuda.conv_depthwise.v1",
            depthwise(BFloat16, Nchw, [1, 128, 2, 2], 1, 10, 1),
            &["FFMA"],
        ),
        (
            "training.forward.f16.nchw.spatial",
            "cuda.batch_norm_training.v1",
            training(Half, Nchw, TRAINED, BatchNormMode::Spatial, ActivationMode::Relu, false),
            &["DADD", "LDG.E.128", "STG.E.128"],
        ),
        (
            "training.forward.f16.nhwc.spatial",
            "cuda.batch_norm_training.v1",
            training(Half, Nhwc, TRAINED, BatchNormMode::Spatial, ActivationMode::Relu, false),
            &["DADD", "LDG.E.128", "STG.E.128"],
        ),
        (
            "training.backward.bf16.nhwc.spatial",
            "cuda.batch_norm_training.v1",
            training(BFloat16, Nhwc, TRAINED, BatchNormMode::Spatial, ActivationMode::Relu, true),
            &["DADD", "LDG.E.128", "STG.E.128"],
        ),
        (
            "training.forward.f16.nhwc.few_channels",
            "cuda.batch_norm_training.v1",
            training(Half, Nhwc, FEW_CHANNELS, BatchNormMode::Spatial, ActivationMode::Relu, false),
            &["DADD", "LDG.E.128", "STG.E.128"],
        ),
        (
            "training.backward.f32.nhwc.few_channels",
            "cuda.batch_norm_training.v1",
            training(Float, Nhwc, FEW_CHANNELS, BatchNormMode::Spatial, ActivationMode::Relu, true),
            &["DADD", "LDG.E.128", "STG.E.128"],
        ),
        (
            "training.forward.bf16.nhwc.per_activation",
            "cuda.batch_norm_training.v1",
            training(BFloat16, Nhwc, TRAINED, BatchNormMode::PerActivation, ActivationMode::Relu, false),
            &["DADD", "LDG.E.128", "STG.E.128"],
        ),
        (
            "training.backward.f32.nchw.per_activation",
            "cuda.batch_norm_training.v1",
            training(Float, Nchw, TRAINED, BatchNormMode::PerActivation, ActivationMode::Relu, true),
            &["DADD", "LDG.E.128", "STG.E.128"],
        ),
    ]
}

/// Tensors whose offsets need 64 bits.
pub(crate) fn wide() -> Vec<Case> {
    use DataType::*;
    use TensorLayout::*;
    let lens = [4096, 128, 56, 56];
    let vectors: &[&str] = &["LDG.E.128", "STG.E.128"];
    vec![
        ("direct.f16.wide", "cuda.direct.v1", conv(Half, Nhwc, &lens, 128, 3, 1, vec![]), &["FFMA"]),
        (
            "element_wise.f16.wide",
            "cuda.element_wise.v1",
            normed(Nchw, Half, lens, BatchNormMode::Spatial),
            vectors,
        ),
        (
            "training.f16.wide",
            "cuda.batch_norm_training.v1",
            training(Half, Nchw, lens, BatchNormMode::Spatial, ActivationMode::Relu, false),
            vectors,
        ),
    ]
}

/// Every activation, in f32 and in 16 bits.
pub(crate) fn activations() -> Vec<(String, Problem)> {
    let types = [DataType::Float, DataType::Half];
    let all = types.into_iter().flat_map(|t| ActivationMode::ALL.map(|mode| (t, mode)));
    let problem = |(data_type, mode): (DataType, ActivationMode)| {
        let ops = vec![Op::ActivationForward { mode }];
        let problem = element_wise(data_type, TensorLayout::Nchw, [2, 3, 4, 5], ops);
        (format!("activation.{mode}.{data_type}"), problem)
    };
    all.map(problem).collect()
}
