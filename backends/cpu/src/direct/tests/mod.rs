//! The direct solvers against sums in f64 that are written down here, on shapes that hurt.
//!
//! Data of small integers must come out exactly; random data within the bound of the sum's rounding.

pub(crate) mod oracle;

use std::sync::Arc;

use fuseplan_api::{ActivationMode, BatchNormMode, ConvolutionDescriptor, DataType, Solver, TensorLayout};

use super::plan::Limits;
use super::{Convolution, DEPTHWISE, DIRECT, DIRECT_GROUPED};
use crate::device::CpuDevice;
use crate::isa::Isa;
use crate::solver::CpuSolver;
use oracle::{Case, Link, Ready};

/// Devices of every instruction set that this processor has.
pub(crate) fn devices(threads: usize) -> Vec<Arc<CpuDevice>> {
    let arch = |isa: &Isa| {
        let family = if cfg!(target_arch = "x86_64") { "x86-64" } else { std::env::consts::ARCH };
        format!("{family}+{}", isa.name())
    };
    let open = |isa| Arc::new(CpuDevice::with_arch(threads, &arch(isa)).unwrap());
    Isa::available().iter().map(open).collect()
}

/// N, C, H, W; K, height, width; pads; strides; dilations; groups.
pub(crate) type Shape = ([usize; 4], [usize; 3], [usize; 2], [usize; 2], [usize; 2], usize);

pub(crate) const SHAPES: &[Shape] = &[
    // 1x1: lines cut from images and batches, tails, odd channels
    ([1, 5, 7, 7], [3, 1, 1], [0, 0], [1, 1], [1, 1], 1),
    ([3, 33, 5, 3], [35, 1, 1], [0, 0], [1, 1], [1, 1], 1),
    ([2, 16, 17, 15], [64, 1, 1], [0, 0], [1, 1], [1, 1], 1),
    ([1, 1, 1, 1], [1, 1, 1], [0, 0], [1, 1], [1, 1], 1),
    ([5, 9, 1, 1], [17, 1, 1], [0, 0], [1, 1], [1, 1], 1),
    ([131, 20, 1, 1], [37, 1, 1], [0, 0], [1, 1], [1, 1], 1),
    ([2, 12, 9, 11], [20, 1, 1], [0, 0], [2, 2], [1, 1], 1),
    ([1, 4, 9, 11], [20, 1, 1], [1, 2], [2, 3], [1, 1], 1),
    ([1, 128, 4, 3], [8, 1, 1], [0, 0], [1, 1], [1, 1], 1),
    // 3x3 and others: pads that differ, strides, dilations, images smaller than the filter
    ([1, 16, 14, 14], [32, 3, 3], [1, 1], [1, 1], [1, 1], 1),
    ([2, 7, 9, 30], [19, 3, 3], [1, 1], [1, 1], [1, 1], 1),
    ([1, 3, 23, 29], [24, 7, 7], [3, 3], [2, 2], [1, 1], 1),
    ([1, 6, 10, 9], [5, 3, 5], [0, 2], [1, 2], [1, 1], 1),
    ([1, 18, 13, 12], [33, 3, 3], [2, 2], [1, 1], [2, 2], 1),
    ([1, 5, 8, 1], [4, 3, 1], [1, 0], [1, 1], [1, 1], 1),
    ([1, 5, 1, 20], [4, 1, 3], [0, 1], [1, 1], [1, 1], 1),
    ([1, 4, 2, 2], [3, 5, 5], [3, 3], [1, 1], [1, 1], 1),
    ([1, 2, 3, 4], [2, 2, 3], [4, 5], [3, 2], [2, 1], 1),
    ([1, 2, 5, 37], [20, 3, 3], [1, 1], [1, 1], [1, 1], 1),
    ([2, 3, 11, 8], [40, 2, 4], [0, 1], [3, 3], [1, 2], 1),
    ([9, 4, 3, 3], [6, 3, 3], [1, 1], [1, 1], [1, 1], 1),
    // groups: wide, narrow, of unequal width, depthwise, with multipliers
    ([1, 40, 6, 7], [40, 3, 3], [1, 1], [1, 1], [1, 1], 2),
    ([2, 32, 9, 9], [32, 3, 3], [1, 1], [1, 1], [1, 1], 8),
    ([1, 12, 7, 18], [18, 3, 3], [1, 1], [2, 1], [1, 1], 6),
    ([1, 21, 7, 9], [7, 3, 2], [1, 0], [1, 1], [1, 1], 7),
    ([2, 19, 10, 9], [19, 3, 3], [1, 1], [1, 1], [1, 1], 19),
    ([1, 16, 12, 33], [16, 5, 5], [2, 2], [2, 2], [1, 1], 16),
    ([1, 5, 6, 6], [15, 3, 3], [1, 1], [1, 1], [2, 2], 5),
    ([1, 6, 5, 40], [6, 1, 1], [0, 0], [1, 1], [1, 1], 6),
    ([1, 36, 4, 5], [4, 3, 3], [1, 1], [1, 1], [1, 1], 4),
    ([2, 32, 3, 2], [32, 5, 5], [3, 3], [1, 1], [1, 1], 32),
    ([1, 37, 9, 20], [37, 3, 3], [2, 2], [1, 2], [2, 2], 37),
    ([1, 16, 3, 29], [16, 2, 4], [1, 0], [1, 3], [1, 1], 16),
    // depthwise: one pixel, no padding, wide padding, many channels
    ([2, 17, 1, 1], [17, 3, 3], [1, 1], [1, 1], [1, 1], 17),
    ([1, 16, 5, 7], [16, 3, 3], [0, 0], [1, 1], [1, 1], 16),
    ([2, 33, 6, 2], [33, 3, 3], [4, 3], [1, 1], [1, 1], 33),
    ([1, 300, 3, 5], [300, 3, 3], [1, 1], [1, 1], [1, 1], 300),
    // as square filters, written out: odd and even extents, in strides of 2, one line, padding as wide as the filter and more
    ([2, 33, 7, 7], [33, 3, 3], [1, 1], [1, 1], [1, 1], 33),
    ([1, 21, 1, 9], [21, 3, 3], [1, 3], [1, 1], [1, 1], 21),
    ([2, 19, 13, 12], [19, 3, 3], [1, 1], [2, 2], [1, 1], 19),
    ([1, 48, 12, 17], [48, 3, 3], [4, 5], [2, 2], [1, 1], 48),
    ([1, 35, 9, 6], [35, 5, 5], [2, 2], [1, 1], [1, 1], 35),
    ([2, 16, 3, 8], [16, 5, 5], [6, 5], [1, 1], [1, 1], 16),
    ([1, 24, 15, 20], [24, 5, 5], [1, 2], [2, 2], [1, 1], 24),
    ([1, 40, 7, 7], [40, 7, 7], [3, 3], [1, 1], [1, 1], 40),
    ([2, 18, 9, 10], [18, 7, 7], [0, 4], [1, 1], [1, 1], 18),
    // several bands of such, and several parts of the channels
    ([1, 70, 21, 41], [70, 5, 5], [2, 2], [1, 1], [1, 1], 70),
    // close to these, but not of them
    ([1, 18, 13, 16], [18, 7, 7], [3, 3], [2, 2], [1, 1], 18),
    ([1, 18, 13, 16], [18, 3, 3], [1, 1], [2, 1], [1, 1], 18),
    ([1, 18, 8, 16], [18, 3, 5], [1, 1], [1, 1], [1, 1], 18),
    // 1x1: a line more, so that threads have as many; an odd number of vectors dealt out in parts; several bands
    ([1, 20, 28, 28], [40, 1, 1], [0, 0], [1, 1], [1, 1], 1),
    ([1, 96, 7, 7], [80, 1, 1], [0, 0], [1, 1], [1, 1], 1),
    ([1, 60, 40, 41], [70, 1, 1], [0, 0], [1, 1], [1, 1], 1),
];

/// With padding after that is not the padding before.
const ONE_SIDED: &[(Shape, [usize; 2])] = &[
    // 1x1: no line is cut from an image that is padded
    (([2, 16, 5, 6], [19, 1, 1], [0, 0], [1, 1], [1, 1], 1), [2, 0]),
    (([2, 16, 5, 6], [19, 1, 1], [0, 0], [1, 1], [1, 1], 1), [0, 3]),
    (([1, 7, 3, 4], [18, 1, 1], [1, 2], [2, 1], [1, 1], 1), [0, 0]),
    // SAME, causal, all padding on one side, wider than the filter
    (([1, 16, 8, 10], [32, 3, 3], [0, 0], [2, 2], [1, 1], 1), [1, 1]),
    (([2, 5, 1, 23], [19, 1, 3], [0, 8], [1, 1], [1, 4], 1), [0, 0]),
    (([1, 6, 5, 7], [5, 3, 2], [0, 4], [1, 1], [1, 1], 1), [5, 0]),
    (([1, 5, 2, 3], [6, 1, 37], [0, 0], [1, 1], [1, 1], 1), [0, 40]),
    (([1, 7, 2, 4], [18, 2, 9], [0, 40], [1, 3], [1, 5], 1), [1, 0]),
    (([2, 3, 4, 6], [5, 2, 4], [0, 90], [3, 2], [61, 57], 1), [61, 90]),
    // groups, narrow and of one channel
    (([1, 12, 7, 18], [18, 3, 3], [0, 0], [2, 1], [1, 1], 6), [1, 2]),
    (([2, 16, 2, 3], [16, 1, 40], [0, 2], [1, 2], [1, 1], 16), [3, 39]),
    (([2, 33, 6, 5], [33, 3, 3], [0, 2], [1, 1], [1, 1], 33), [4, 0]),
    (([1, 37, 9, 20], [37, 3, 3], [3, 0], [1, 2], [2, 2], 37), [1, 3]),
    (([2, 20, 9, 12], [20, 3, 3], [0, 0], [2, 2], [1, 1], 20), [1, 1]),
    (([1, 17, 6, 7], [17, 5, 5], [0, 5], [1, 1], [1, 1], 17), [4, 1]),
    (([1, 17, 5, 6], [17, 7, 7], [6, 0], [1, 1], [1, 1], 17), [0, 7]),
];

pub(crate) fn case(shape: &Shape, data_type: DataType, layout: TensorLayout) -> Case {
    one_sided(shape, shape.2, data_type, layout)
}

fn one_sided(shape: &Shape, after: [usize; 2], data_type: DataType, layout: TensorLayout) -> Case {
    let (x, [k, h, w], before, strides, dilations, groups) = *shape;
    let conv = ConvolutionDescriptor::d2()
        .with_asymmetric_pads(before, after)
        .unwrap()
        .with_strides(strides)
        .unwrap()
        .with_dilations(dilations)
        .unwrap()
        .with_groups(groups)
        .unwrap();
    Case::new(data_type, layout, &x, &[k, x[1] / groups, h, w], conv)
}

pub(crate) const TYPES: [DataType; 3] = [DataType::Float, DataType::Half, DataType::BFloat16];
pub(crate) const LAYOUTS: [TensorLayout; 2] = [TensorLayout::Nchw, TensorLayout::Nhwc];

/// The solvers whose outputs are sums of their own products.
const SOLVERS: &[&dyn Solver] = &[
    &DIRECT,
    &DIRECT_GROUPED,
    &DEPTHWISE,
    #[cfg(target_arch = "x86_64")]
    &crate::bf16::AMX,
    #[cfg(target_arch = "x86_64")]
    &crate::bf16::AVX512_BF16,
    #[cfg(target_arch = "x86_64")]
    &crate::pointwise::POINTWISE_BF16,
];

/// On every device, with every solver that takes the case.
fn check(case: Case, devices: &[Arc<CpuDevice>], exact: bool) {
    let ready = Ready::new(&case);
    for device in devices {
        for solver in SOLVERS.iter().filter(|s| case.is_taken(**s, device)) {
            ready.check(*solver, device, exact);
        }
    }
}

#[test]
fn integers_come_out_exactly() {
    let devices = devices(2);
    for shape in SHAPES {
        for (data_type, layout) in TYPES.iter().flat_map(|&t| LAYOUTS.map(|l| (t, l))) {
            let case = case(shape, data_type, layout).integers();
            check(case.clone(), &devices, true);
            check(case.link(Link::Bias).link(Link::Act(ActivationMode::Relu)), &devices, true);
        }
    }
}

/// Cuts where only huge problems are cut otherwise.
const CUT: Limits = Limits { span: 5, least_span: 2, pack: 300 };

static CUT_DIRECT: CpuSolver = CpuSolver {
    load: |solver, problem, device, _| Arc::new(Convolution::new(solver, problem, false, device, CUT)),
    ..DIRECT
};

static CUT_GROUPED: CpuSolver = CpuSolver {
    load: |solver, problem, device, _| Arc::new(Convolution::new(solver, problem, true, device, CUT)),
    ..DIRECT_GROUPED
};

#[test]
fn spans_chunks_and_taps_packed_apart_give_the_same_numbers() {
    let more: [Shape; 9] = [
        // A run for each tap; lines that only taps need; both with strides.
        ([1, 6, 5, 9], [19, 3, 3], [40, 50], [1, 1], [41, 52], 1),
        ([2, 3, 4, 6], [5, 2, 4], [33, 90], [3, 2], [61, 57], 1),
        ([1, 20, 3, 4], [20, 3, 3], [60, 60], [2, 3], [60, 61], 20),
        // Tiles whose taps are all in the padding, or none.
        ([1, 5, 2, 3], [6, 1, 37], [0, 36], [1, 1], [1, 1], 1),
        ([1, 7, 2, 4], [18, 2, 9], [0, 40], [1, 3], [1, 5], 1),
        ([2, 16, 2, 3], [16, 1, 40], [0, 39], [1, 2], [1, 1], 16),
        // Chunks of channels, the last of them narrow, also with a gap between pixels.
        ([1, 150, 3, 7], [70, 3, 3], [1, 1], [1, 1], [1, 1], 1),
        ([1, 400, 2, 5], [9, 1, 1], [0, 0], [1, 1], [1, 1], 1),
        ([1, 90, 4, 9], [6, 2, 3], [0, 30], [1, 1], [1, 29], 2),
    ];
    let devices = devices(2);
    let (mut spans, mut chunks) = (0, 0);
    let all =
        SHAPES.iter().map(|shape| (shape, &TYPES[..1])).chain(more.iter().map(|shape| (shape, &TYPES[..2])));
    for (shape, types) in all {
        for (data_type, layout) in types.iter().flat_map(|&t| LAYOUTS.map(|l| (t, l))) {
            let ready = Ready::new(
                &case(shape, data_type, layout)
                    .link(Link::Bias)
                    .link(Link::Residual)
                    .link(Link::Act(ActivationMode::Relu))
                    .integers(),
            );
            let bare = Ready::new(&case(shape, data_type, layout).link(Link::Bias).integers());
            for device in &devices {
                for solver in [&CUT_DIRECT, &CUT_GROUPED] {
                    for ready in [&ready, &bare].into_iter().filter(|r| r.case.is_taken(solver, device)) {
                        ready.check(solver, device, true);
                        let detail = ready.case.load(solver, device).info().detail.clone();
                        spans += usize::from(detail.contains("spans"));
                        chunks += usize::from(detail.contains("at a time"));
                    }
                }
            }
        }
    }
    assert!(spans > 60 && chunks > 10, "{spans} in spans, {chunks} in chunks");
}

#[test]
fn padding_of_one_side_is_taken() {
    let devices = devices(2);
    for ((shape, after), data_type) in ONE_SIDED.iter().flat_map(|s| TYPES.map(|t| (s, t))) {
        for layout in LAYOUTS {
            let case = one_sided(shape, *after, data_type, layout).link(Link::Residual).integers();
            let ready = Ready::new(&case);
            for device in &devices {
                let cut: [&dyn Solver; 2] = [&CUT_DIRECT, &CUT_GROUPED];
                for solver in SOLVERS.iter().chain(&cut).filter(|solver| case.is_taken(**solver, device)) {
                    ready.check(*solver, device, true);
                }
            }
        }
    }
    // Slices of the output that see no slice of the input.
    for (data_type, layout) in
        TYPES.into_iter().flat_map(|t| [TensorLayout::Ncdhw, TensorLayout::Ndhwc].map(|l| (t, l)))
    {
        for (taps, groups, before, after) in [
            ([1, 3, 3], 16, [0, 1, 1], [2, 1, 1]),
            ([1, 3, 3], 1, [2, 0, 1], [0, 2, 0]),
            ([1, 1, 1], 1, [0, 0, 0], [3, 0, 0]),
            ([3, 3, 3], 1, [2, 1, 1], [0, 1, 1]),
            ([2, 1, 3], 4, [0, 0, 2], [4, 1, 0]),
        ] {
            let conv = ConvolutionDescriptor::d3().with_asymmetric_pads(before, after).unwrap();
            let weights = [&[16, 16 / groups][..], &taps].concat();
            let conv = conv.with_groups(groups).unwrap();
            let case = Case::new(data_type, layout, &[2, 16, 2, 4, 5], &weights, conv);
            check(case.link(Link::Bias).integers(), &devices, true);
        }
    }
}

#[test]
fn random_data_stays_within_the_bound() {
    let devices = devices(3);
    for shape in SHAPES {
        for (data_type, layout) in TYPES.iter().flat_map(|&t| LAYOUTS.map(|l| (t, l))) {
            let case = case(shape, data_type, layout);
            let chain =
                [Link::Bias, Link::Norm(BatchNormMode::Spatial), Link::Act(ActivationMode::LeakyRelu)];
            check(chain.into_iter().fold(case, Case::link), &devices, false);
        }
    }
}

#[test]
fn every_chain_of_operators_is_applied_in_order() {
    use ActivationMode::*;
    use BatchNormMode::{PerActivation, Spatial};
    let chains: Vec<Vec<Link>> = vec![
        vec![Link::Residual],
        vec![Link::Residual, Link::Act(Relu)],
        vec![Link::Bias, Link::Residual, Link::Act(LeakyRelu)],
        vec![Link::Bias, Link::Residual, Link::Act(Silu)],
        vec![Link::Bias, Link::Residual, Link::Act(ClippedRelu)],
        vec![Link::Bias, Link::Act(Silu)],
        vec![Link::Bias, Link::Act(Tanh), Link::Norm(Spatial)],
        vec![Link::Bias, Link::Act(HardSwish)],
        vec![Link::Bias, Link::Act(HardSwish), Link::Norm(Spatial)],
        vec![Link::Norm(Spatial), Link::Residual, Link::Act(Relu)],
        vec![Link::Act(Relu), Link::Bias],
        vec![Link::Act(Tanh), Link::Norm(Spatial), Link::Act(Logistic), Link::Bias],
        vec![Link::Norm(PerActivation), Link::Act(Elu)],
        vec![Link::Bias, Link::Bias, Link::Norm(PerActivation), Link::Residual, Link::Residual],
        vec![Link::Act(Clamp), Link::Act(Abs), Link::Act(SoftRelu)],
        vec![Link::Act(ClippedRelu), Link::Act(Pasthru), Link::Norm(Spatial), Link::Norm(Spatial)],
        vec![Link::Act(Abs), Link::Act(Power)],
        // In registers, and in rows.
        vec![Link::PRelu, Link::Norm(Spatial), Link::PRelu],
    ];
    let shapes: [Shape; 9] = [
        ([1, 9, 6, 17], [48, 3, 3], [1, 1], [1, 1], [1, 1], 1),
        ([2, 6, 7, 5], [35, 1, 1], [0, 0], [1, 1], [1, 1], 1),
        ([2, 6, 7, 21], [19, 3, 3], [1, 1], [1, 1], [1, 1], 1),
        ([1, 6, 9, 9], [4, 3, 3], [1, 1], [2, 2], [1, 1], 1),
        ([2, 20, 5, 6], [20, 3, 3], [1, 1], [1, 1], [1, 1], 20),
        ([1, 270, 3, 5], [270, 3, 3], [1, 1], [1, 1], [1, 1], 270),
        // Channels in whole vectors, which an activation follows in registers or in the output.
        ([2, 32, 5, 7], [32, 3, 3], [1, 1], [1, 1], [1, 1], 32),
        ([1, 16, 9, 13], [16, 5, 5], [2, 2], [2, 2], [1, 1], 16),
        ([1, 48, 6, 9], [48, 3, 3], [2, 2], [1, 1], [2, 2], 48),
    ];
    let devices = devices(2);
    for (shape, chain) in shapes.iter().flat_map(|s| chains.iter().map(move |c| (s, c))) {
        for (data_type, layout) in TYPES.iter().flat_map(|&t| LAYOUTS.map(|l| (t, l))) {
            let case = chain.iter().copied().fold(case(shape, data_type, layout), Case::link);
            check(case.clone(), &devices, false);
            check(case.scaled(), &devices, false);
        }
    }
}

#[test]
fn strided_tensors_and_volumes_are_taken() {
    let devices = devices(2);
    for data_type in TYPES {
        for shape in [&SHAPES[2], &SHAPES[9], &SHAPES[20]] {
            for layout in LAYOUTS {
                let case =
                    case(shape, data_type, layout).link(Link::Residual).link(Link::Act(ActivationMode::Relu));
                check(case.clone().spread(), &devices, false);
                check(case.scattered(), &devices, false);
            }
        }
        for layout in [TensorLayout::Ncdhw, TensorLayout::Ndhwc] {
            let three = |pads: [usize; 3], strides: [usize; 3], dilations: [usize; 3]| {
                let conv = ConvolutionDescriptor::d3().with_pads(pads).unwrap();
                conv.with_strides(strides).unwrap().with_dilations(dilations).unwrap()
            };
            let conv = three([1, 0, 1], [2, 1, 1], [1, 1, 2]);
            let case = Case::new(data_type, layout, &[2, 5, 6, 4, 9], &[18, 5, 3, 2, 3], conv);
            check(case.link(Link::Bias), &devices, false);
            let conv = three([0; 3], [1; 3], [1; 3]);
            let case = Case::new(data_type, layout, &[2, 5, 3, 4, 5], &[18, 5, 1, 1, 1], conv);
            check(case.link(Link::Residual).integers(), &devices, true);
            let conv = three([1; 3], [1; 3], [1; 3]).with_groups(6).unwrap();
            let case = Case::new(data_type, layout, &[1, 6, 3, 4, 5], &[12, 1, 3, 3, 3], conv);
            check(case.integers(), &devices, true);
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let by_threads: Vec<_> = [1, 2, 3, 5].map(devices).into();
    for shape in SHAPES {
        for layout in LAYOUTS {
            let case = case(shape, DataType::Float, layout).link(Link::Norm(BatchNormMode::Spatial));
            let ready = Ready::new(&case);
            for isa in 0..by_threads[0].len() {
                for solver in SOLVERS.iter().filter(|s| case.is_taken(**s, &by_threads[0][isa])) {
                    let run = |devices: &Vec<_>| ready.run(&*case.load(*solver, &devices[isa]), true);
                    let results: Vec<_> = by_threads.iter().map(run).collect();
                    assert!(results.iter().all(|r| *r == results[0]), "{}: {case:?}", solver.id());
                }
            }
        }
    }
}

/// Bands that ask for the next one's residual, lines and parts of vectors that threads have as many of.
#[test]
fn work_dealt_evenly_gives_the_same_bits() {
    let by_threads: Vec<_> = [1, 2, 3, 4].map(devices).into();
    for shape in &SHAPES[SHAPES.len() - 3..] {
        for layout in LAYOUTS {
            let case = case(shape, DataType::Float, layout).link(Link::Bias).link(Link::Residual);
            let case = case.link(Link::Act(ActivationMode::Relu));
            let ready = Ready::new(&case);
            for isa in 0..by_threads[0].len() {
                let run = |devices: &Vec<_>| ready.run(&*case.load(&DIRECT, &devices[isa]), true);
                let results: Vec<_> = by_threads.iter().map(run).collect();
                ready.compare(&results[0], false, "one thread");
                assert!(results.iter().all(|r| *r == results[0]), "{case:?}");
            }
        }
    }
}

#[test]
fn one_executable_runs_on_many_threads_at_once() {
    for device in devices(2) {
        for layout in LAYOUTS {
            let case = case(&SHAPES[9], DataType::Float, layout).link(Link::Residual).integers();
            let (ready, executable) = (Ready::new(&case), case.load(&DIRECT, &device));
            let once = || ready.compare(&ready.run(&*executable, true), true, "at once with others");
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| (0..20).for_each(|_| once()));
                }
            });
        }
    }
}
