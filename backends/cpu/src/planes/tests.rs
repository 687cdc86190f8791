//! Depthwise convolution with pixels in the lanes against sums in f64, on shapes that hurt. Sums of small integers must come
//! out exactly.

use fuseplan_api::{ActivationMode, BatchNormMode, ConvolutionDescriptor, DataType, TensorLayout};

use super::DEPTHWISE_PLANES;
use crate::direct::tests::devices;
use crate::direct::tests::oracle::{Case, Link, Ready};

/// N, C, H, W; filters of a channel; taps; padding above, left, below, right; strides; dilations.
type Shape = ([usize; 4], usize, [usize; 2], [usize; 4], [usize; 2], [usize; 2]);

const SHAPES: &[Shape] = &[
    // One pixel; lines of less than a vector, of one, of more; images smaller than the filter
    ([1, 1, 1, 1], 1, [3, 3], [1; 4], [1, 1], [1, 1]),
    ([2, 3, 7, 5], 1, [3, 3], [1; 4], [1, 1], [1, 1]),
    ([2, 5, 9, 16], 1, [3, 3], [1; 4], [1, 1], [1, 1]),
    ([1, 4, 13, 37], 1, [5, 5], [2; 4], [1, 1], [1, 1]),
    ([1, 2, 2, 3], 1, [5, 7], [4, 6, 4, 6], [1, 1], [1, 1]),
    // Strides and dilations, together and apart; one tap; padding on one side, and wider than the image
    ([1, 6, 12, 13], 1, [3, 3], [1; 4], [2, 2], [1, 1]),
    ([2, 3, 15, 34], 1, [3, 4], [0, 1, 1, 2], [1, 3], [2, 1]),
    ([1, 3, 17, 21], 1, [3, 3], [2; 4], [2, 2], [2, 3]),
    ([3, 4, 6, 10], 1, [1, 1], [0; 4], [2, 2], [1, 1]),
    ([1, 3, 4, 4], 1, [3, 3], [0, 9, 7, 0], [1, 1], [1, 1]),
    // Several bands; several filters for a channel
    ([1, 2, 150, 131], 1, [3, 3], [1; 4], [1, 1], [1, 1]),
    ([2, 3, 9, 11], 3, [3, 2], [1; 4], [1, 2], [1, 1]),
];

const TYPES: [DataType; 3] = [DataType::Float, DataType::Half, DataType::BFloat16];
const LAYOUTS: [TensorLayout; 2] = [TensorLayout::Nchw, TensorLayout::Nhwc];

fn case(
    &(x, filters, taps, pads, strides, dilations): &Shape,
    data_type: DataType,
    layout: TensorLayout,
) -> Case {
    let [above, left, below, right] = pads;
    let conv = ConvolutionDescriptor::d2().with_asymmetric_pads([above, left], [below, right]).unwrap();
    let conv = conv.with_strides(strides).unwrap().with_dilations(dilations).unwrap();
    let conv = conv.with_groups(x[1]).unwrap();
    Case::new(data_type, layout, &x, &[filters * x[1], 1, taps[0], taps[1]], conv)
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
                    ready.check(&DEPTHWISE_PLANES, device, true);
                }
            }
        }
    }
}

#[test]
fn chains_strides_and_scales_are_as_declared() {
    use ActivationMode::{LeakyRelu, Tanh};
    let chains: [&[Link]; 4] = [
        &[Link::Norm(BatchNormMode::Spatial), Link::Residual, Link::Act(LeakyRelu)],
        &[Link::Act(Tanh), Link::Norm(BatchNormMode::PerActivation), Link::Bias],
        &[Link::PRelu, Link::Bias, Link::PRelu],
        &[Link::Bias, Link::Act(LeakyRelu)],
    ];
    let devices = devices(2);
    for (shape, chain) in [&SHAPES[3], &SHAPES[11]].into_iter().flat_map(|s| chains.map(move |c| (s, c))) {
        for (data_type, layout) in TYPES.iter().flat_map(|&t| LAYOUTS.map(|l| (t, l))) {
            let case = chain.iter().copied().fold(case(shape, data_type, layout), Case::link);
            for case in [case.clone(), case.clone().scaled(), case.clone().spread(), case.scattered()] {
                let ready = Ready::new(&case);
                for device in &devices {
                    ready.check(&DEPTHWISE_PLANES, device, false);
                }
            }
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let by_threads = [1, 2, 3, 5].map(devices);
    for shape in SHAPES {
        let case = case(shape, DataType::Float, TensorLayout::Nchw).link(Link::Norm(BatchNormMode::Spatial));
        let ready = Ready::new(&case);
        for isa in 0..by_threads[0].len() {
            let run = |devices: &Vec<_>| ready.run(&*case.load(&DEPTHWISE_PLANES, &devices[isa]), true);
            let results = by_threads.each_ref().map(run);
            assert!(results.iter().all(|r| *r == results[0]), "{case:?}");
        }
    }
}
