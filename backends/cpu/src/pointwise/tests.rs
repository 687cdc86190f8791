//! Convolution with 1x1 filters against sums in f64, on shapes that hurt. Sums of small integers must come out exactly.

use fuseplan_api::{
    ActivationMode, BatchNormMode, ConvolutionDescriptor, DataType, Device, Op, Problem, TensorDescriptor,
    TensorLayout,
};

use super::{PIXELS, POINTWISE};
use crate::direct::DIRECT;
use crate::direct::tests::devices;
use crate::direct::tests::oracle::{Case, Link, Ready};

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

/// Groups change nothing of what direct convolution transposes, and leave less to multiply.
#[test]
fn small_images_count_the_channels_of_all_groups() {
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
                    ready.check(&POINTWISE, device, true);
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
                    ready.check(&POINTWISE, device, false);
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
