//! Convolution with 1x1 filters against sums in f64, on shapes that hurt. Sums of small integers must come out exactly.

use std::sync::Arc;

use fuseplan_api::{
    ActivationMode, BatchNormMode, ConvolutionDescriptor, DataType, Device, Op, Problem, TensorDescriptor,
    TensorLayout,
};

use super::{PIXELS, POINTWISE};
#[cfg(target_arch = "x86_64")]
use crate::bf16::AVX512_BF16;
use crate::device::CpuDevice;
use crate::direct::DIRECT;
use crate::direct::tests::devices;
use crate::direct::tests::oracle::{Case, Link, Ready};
use crate::solver::CpuSolver;

const SOLVERS: &[&CpuSolver] = &[
    &POINTWISE,
    #[cfg(target_arch = "x86_64")]
    &super::POINTWISE_BF16,
];

/// N, C, H, W; K; groups.
type Shape = ([usize; 4], usize, usize);

const SHAPES: &[Shape] = &[
    // One pixel; less than a vector; images that end inside of vectors, panels and blocks
    ([1, 1, 1, 1], 1, 1),
    ([1, 5, 7, 7], 3, 1),
    ([5, 7, 3, 3], 13, 1),
    ([9, 4, 1, 5], 6, 1),
    ([3, 16, 8, 8], 32, 1),
    ([2, 17, 13, 11], 33, 1),
    // Several blocks, and filters in parts
    ([1, 3, 40, 41], 7, 1),
    ([2, 130, 12, 13], 140, 1),
    ([1, 300, 4, 9], 130, 1),
    // One channel: pixels of NHWC side by side in the input alone
    ([2, 1, 5, 7], 9, 1),
    // More images in a panel than pixels of one, and a last step of pairs behind whole ones
    ([70, 3, 1, 1], 5, 1),
    ([1, 71, 9, 11], 47, 1),
    // Groups
    ([2, 12, 6, 7], 18, 3),
    ([3, 6, 5, 5], 6, 6),
];

const TYPES: [DataType; 3] = [DataType::Float, DataType::Half, DataType::BFloat16];
const LAYOUTS: [TensorLayout; 2] = [TensorLayout::Nchw, TensorLayout::Nhwc];

fn case(&(x, k, groups): &Shape, data_type: DataType, layout: TensorLayout) -> Case {
    let conv = ConvolutionDescriptor::d2().with_groups(groups).unwrap();
    Case::new(data_type, layout, &x, &[k, x[1] / groups, 1, 1], conv)
}

/// With every solver that takes the case, of which one takes all.
fn check(ready: &Ready, device: &Arc<CpuDevice>, exact: bool) {
    assert!(ready.case.is_taken(&POINTWISE, device));
    for &solver in SOLVERS {
        if ready.case.is_taken(solver, device) {
            ready.check(solver, device, exact);
        }
    }
}

/// Whether this machine has what multiplies pairs of bf16.
#[cfg(target_arch = "x86_64")]
fn has_pairs() -> bool {
    crate::isa::Isa::available().contains(&crate::isa::Isa::Avx512Bf16)
}

/// Groups change nothing of what direct convolution transposes, and leave less to multiply.
#[test]
fn small_images_count_the_channels_of_all_groups_and_what_fills_vectors() {
    let device = &devices(1)[0];
    let is_preferred = |x: [usize; 4], k: usize, groups: usize| {
        let conv = ConvolutionDescriptor::d2().with_groups(groups).unwrap();
        let input = TensorDescriptor::nchw(DataType::Float, x).unwrap();
        let weights = TensorDescriptor::nchw(DataType::Float, [k, x[1] / groups, 1, 1]).unwrap();
        let output = conv.forward_output(&input, &weights).unwrap();
        let ops = vec![Op::ConvForward { conv, weights }];
        let problem = Problem { input, output, ops, math: Default::default() };
        (PIXELS.check)(&problem, device.info()).is_none()
    };
    for groups in [1, 2, 4, 64] {
        assert!(is_preferred([1, 128, 8, 8], 64, groups), "{groups}");
        assert!(!is_preferred([1, 128, 7, 7], 64, groups), "{groups}");
        assert!(!is_preferred([1, 64, 8, 8], 64, groups), "{groups}");
    }
    // One pixel in the last vector.
    assert!(is_preferred([1, 2048, 8, 8], 1024, 1));
    assert!(!is_preferred([1, 2048, 5, 13], 1024, 1));
}

#[test]
fn integers_come_out_exactly() {
    let threads = [1, 3].map(devices);
    for shape in SHAPES {
        for (data_type, layout) in TYPES.iter().flat_map(|&t| LAYOUTS.map(|l| (t, l))) {
            let case = case(shape, data_type, layout).integers();
            let more = case.clone().link(Link::Bias).link(Link::Residual);
            for ready in [case, more.link(Link::Act(ActivationMode::Relu))].map(|case| Ready::new(&case)) {
                for device in threads.iter().flatten() {
                    check(&ready, device, true);
                }
            }
        }
    }
}

#[test]
fn chains_and_scales_are_as_declared() {
    use ActivationMode::{LeakyRelu, Tanh};
    let chains: [&[Link]; 4] = [
        &[Link::Norm(BatchNormMode::Spatial), Link::Residual, Link::Act(LeakyRelu)],
        &[Link::Act(Tanh), Link::Norm(BatchNormMode::PerActivation), Link::Bias],
        &[Link::PRelu, Link::Bias, Link::PRelu],
        &[Link::Bias, Link::Act(LeakyRelu)],
    ];
    let devices = devices(2);
    for (shape, chain) in [&SHAPES[2], &SHAPES[5]].into_iter().flat_map(|s| chains.map(move |c| (s, c))) {
        for (data_type, layout) in TYPES.iter().flat_map(|&t| LAYOUTS.map(|l| (t, l))) {
            let case = chain.iter().copied().fold(case(shape, data_type, layout), Case::link);
            // Elements three apart, a line's and a plane's alike.
            for case in [case.clone(), case.clone().scaled(), case.scattered()] {
                let ready = Ready::new(&case);
                for device in &devices {
                    check(&ready, device, false);
                }
            }
        }
    }
}

#[test]
fn bits_are_those_of_direct_convolution_for_any_number_of_threads() {
    let by_threads = [1, 2, 3, 5].map(devices);
    for shape in SHAPES {
        for layout in LAYOUTS {
            let case = case(shape, DataType::Float, layout).link(Link::Norm(BatchNormMode::Spatial));
            let ready = Ready::new(&case);
            for isa in 0..by_threads[0].len() {
                let direct = ready.run(&*case.load(&DIRECT, &by_threads[0][isa]), true);
                for devices in &by_threads {
                    let found = ready.run(&*case.load(&POINTWISE, &devices[isa]), true);
                    assert!(found == direct, "{case:?}");
                }
            }
        }
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn bits_of_pairs_are_those_with_output_channels_in_the_lanes_for_any_number_of_threads() {
    use super::POINTWISE_BF16;
    let by_threads = [1, 2, 3, 5].map(devices);
    let mut cases = 0;
    for shape in SHAPES {
        let bare = case(shape, DataType::BFloat16, TensorLayout::Nchw);
        let residual = bare.clone().link(Link::Residual);
        for case in [bare.clone(), bare.link(Link::Norm(BatchNormMode::Spatial)), residual] {
            for isa in 0..by_threads[0].len() {
                if !case.is_taken(&POINTWISE_BF16, &by_threads[0][isa]) {
                    continue;
                }
                let ready = Ready::new(&case);
                let expected = ready.run(&*case.load(&AVX512_BF16, &by_threads[0][isa]), true);
                for devices in &by_threads {
                    let found = ready.run(&*case.load(&POINTWISE_BF16, &devices[isa]), true);
                    assert!(found == expected, "{case:?}");
                    cases += 1;
                }
            }
        }
    }
    assert_eq!(cases > 0, has_pairs(), "{cases}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn numbers_that_are_not_finite_stay_with_their_pixels_and_filters() {
    use super::POINTWISE_BF16;
    // An odd number of channels, and pixels that end inside of a vector.
    let shape: Shape = ([2, 19, 5, 7], 9, 1);
    let mut cases = 0;
    for device in devices(2) {
        let bare = case(&shape, DataType::BFloat16, TensorLayout::Nchw).integers().link(Link::Bias);
        if !bare.is_taken(&POINTWISE_BF16, &device) {
            continue;
        }
        for value in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            for (of_weights, at) in [(false, 0), (false, 18 * 35 + 34), (false, 19 * 35), (true, 18)] {
                let ready = Ready::new(&bare).with(of_weights, at, value);
                let direct = ready.outputs(&*ready.case.load(&DIRECT, &device), false);
                let found = ready.outputs(&*ready.case.load(&POINTWISE_BF16, &device), false);
                cases += 1;
                let alike = |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan();
                assert!(direct.iter().zip(&found).all(alike), "{value} at {at}");
                assert!(direct.iter().any(|y| y.is_finite()) && direct.iter().any(|y| !y.is_finite()));
            }
        }
    }
    assert_eq!(cases > 0, has_pairs(), "{cases}");
}
