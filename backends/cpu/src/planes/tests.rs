//! Convolution with pixels in the lanes against sums in f64, on shapes that hurt. Sums of small integers must come out exactly.

use fuseplan_api::{
    ActivationMode, BatchNormMode, ConvolutionDescriptor, DataType, Device, TensorDescriptor, TensorLayout,
};

use super::{NARROW, PLANES};
use crate::direct::DIRECT;
use crate::direct::tests::devices;
use crate::direct::tests::oracle::{Case, Link, Ready};

/// N, C, H, W; groups, filters of a group; taps; padding above, left, below, right; strides; dilations.
type Shape = ([usize; 4], [usize; 2], [usize; 2], [usize; 4], [usize; 2], [usize; 2]);

const SHAPES: &[Shape] = &[
    // Depthwise: one pixel; lines of less than a vector, of one, of more; images smaller than the filter
    ([1, 1, 1, 1], [1, 1], [3, 3], [1; 4], [1, 1], [1, 1]),
    ([2, 3, 7, 5], [3, 1], [3, 3], [1; 4], [1, 1], [1, 1]),
    ([2, 5, 9, 16], [5, 1], [3, 3], [1; 4], [1, 1], [1, 1]),
    ([1, 4, 13, 37], [4, 1], [5, 5], [2; 4], [1, 1], [1, 1]),
    ([1, 2, 2, 3], [2, 1], [5, 7], [4, 6, 4, 6], [1, 1], [1, 1]),
    // Strides and dilations, together and apart; one tap; padding on one side, and wider than the image
    ([1, 6, 12, 13], [6, 1], [3, 3], [1; 4], [2, 2], [1, 1]),
    ([2, 3, 15, 34], [3, 1], [3, 4], [0, 1, 1, 2], [1, 3], [2, 1]),
    ([1, 3, 17, 21], [3, 1], [3, 3], [2; 4], [2, 2], [2, 3]),
    ([3, 4, 6, 10], [4, 1], [1, 1], [0; 4], [2, 2], [1, 1]),
    ([1, 3, 4, 4], [3, 1], [3, 3], [0, 9, 7, 0], [1, 1], [1, 1]),
    // Several bands; several filters for a channel
    ([1, 2, 150, 131], [2, 1], [3, 3], [1; 4], [1, 1], [1, 1]),
    ([2, 3, 9, 11], [3, 3], [3, 2], [1; 4], [1, 2], [1, 1]),
    // Groups: narrow ones, several in a vector, as wide as one, wider, of unequal width, one alone
    ([2, 32, 9, 14], [8, 4], [3, 3], [1; 4], [1, 1], [1, 1]),
    ([1, 48, 7, 7], [3, 16], [3, 3], [1; 4], [1, 1], [1, 1]),
    ([1, 10, 8, 23], [2, 21], [3, 3], [1; 4], [1, 1], [1, 1]),
    ([2, 42, 5, 6], [2, 3], [3, 3], [1; 4], [1, 1], [1, 1]),
    ([1, 3, 11, 18], [1, 40], [3, 3], [1; 4], [1, 1], [1, 1]),
    // The same in strides, with dilations, one tap, padding on one side, none, wider than the image
    ([2, 16, 15, 29], [4, 4], [3, 3], [1; 4], [2, 2], [1, 1]),
    ([1, 15, 11, 12], [3, 7], [5, 5], [2; 4], [3, 2], [1, 1]),
    ([1, 16, 17, 21], [2, 8], [3, 2], [0, 3, 2, 0], [2, 3], [3, 2]),
    ([3, 12, 6, 10], [2, 5], [1, 1], [0; 4], [2, 2], [1, 1]),
    ([2, 18, 6, 40], [6, 2], [1, 1], [0; 4], [1, 1], [1, 1]),
    ([1, 8, 2, 3], [2, 6], [3, 9], [0, 40, 7, 0], [1, 1], [1, 1]),
    ([1, 6, 5, 4], [3, 2], [3, 3], [20, 30, 0, 2], [7, 9], [1, 4]),
    // Groups and lines that are cut
    ([1, 132, 20, 70], [33, 4], [3, 3], [1; 4], [1, 1], [1, 1]),
    ([1, 16, 70, 131], [2, 8], [3, 3], [1; 4], [1, 1], [1, 1]),
];

const TYPES: [DataType; 3] = [DataType::Float, DataType::Half, DataType::BFloat16];
const LAYOUTS: [TensorLayout; 2] = [TensorLayout::Nchw, TensorLayout::Nhwc];

fn case(
    &(x, [groups, filters], taps, pads, strides, dilations): &Shape,
    data_type: DataType,
    layout: TensorLayout,
) -> Case {
    let [above, left, below, right] = pads;
    let conv = ConvolutionDescriptor::d2().with_asymmetric_pads([above, left], [below, right]).unwrap();
    let conv = conv.with_strides(strides).unwrap().with_dilations(dilations).unwrap();
    let conv = conv.with_groups(groups).unwrap();
    Case::new(data_type, layout, &x, &[filters * groups, x[1] / groups, taps[0], taps[1]], conv)
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
                    ready.check(&PLANES, device, true);
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
    for (shape, chain) in
        [3, 11, 12, 18].map(|shape| &SHAPES[shape]).into_iter().flat_map(|s| chains.map(move |c| (s, c)))
    {
        for (data_type, layout) in TYPES.iter().flat_map(|&t| LAYOUTS.map(|l| (t, l))) {
            let case = chain.iter().copied().fold(case(shape, data_type, layout), Case::link);
            for case in [case.clone(), case.clone().scaled(), case.clone().spread(), case.scattered()] {
                let ready = Ready::new(&case);
                for device in &devices {
                    ready.check(&PLANES, device, false);
                }
            }
        }
    }
}

/// Slices with taps in front of the image, behind it, and nowhere in it.
#[test]
fn depth_is_taken() {
    let devices = devices(2);
    for (data_type, layout) in
        TYPES.into_iter().flat_map(|t| [TensorLayout::Ncdhw, TensorLayout::Ndhwc].map(|l| (t, l)))
    {
        for (taps, groups, before, after, strides, dilations) in [
            ([3, 3, 3], 4, [1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 1]),
            ([1, 3, 3], 16, [0, 1, 1], [2, 1, 1], [1, 1, 1], [1, 1, 1]),
            ([2, 1, 3], 4, [0, 0, 2], [4, 1, 0], [1, 1, 1], [1, 1, 1]),
            ([3, 2, 3], 2, [2, 1, 3], [0, 0, 1], [2, 1, 2], [2, 1, 1]),
        ] {
            let conv = ConvolutionDescriptor::d3().with_asymmetric_pads(before, after).unwrap();
            let conv = conv.with_strides(strides).unwrap().with_dilations(dilations).unwrap();
            let weights = [&[16, 16 / groups][..], &taps].concat();
            let case =
                Case::new(data_type, layout, &[2, 16, 4, 5, 19], &weights, conv.with_groups(groups).unwrap());
            let more = case.clone().link(Link::Residual).link(Link::Act(ActivationMode::Relu));
            for ready in [case.link(Link::Bias), more].map(|case| Ready::new(&case.integers())) {
                for device in &devices {
                    ready.check(&PLANES, device, true);
                }
            }
        }
    }
}

/// Padding is a product with 0 here, which direct convolution leaves out.
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
                    let found = ready.run(&*case.load(&PLANES, &devices[isa]), true);
                    assert!(found == direct, "{case:?}");
                }
            }
        }
    }
}

#[test]
fn groups_of_up_to_three_quarters_of_a_vector_and_of_four_are_preferred() {
    for device in devices(1) {
        let most = match device.info().lanes {
            4 => 4,
            8 => 6,
            16 => 12,
            lanes => panic!("vectors of {lanes} lanes"),
        };
        for (outputs, is_preferred) in [(most, true), (most + 1, false)] {
            let shape = ([1, 2 * outputs, 9, 9], [2, outputs], [3, 3], [1; 4], [1, 1], [1, 1]);
            let case = case(&shape, DataType::Float, TensorLayout::Nchw);
            let refusal = (NARROW.check)(&case.problem, device.info());
            assert_eq!(refusal.is_none(), is_preferred, "{outputs} on {}: {refusal:?}", device.info().arch);
        }
    }
}

/// Nothing lies beside the only line or column of an image, however far that is said to be.
#[test]
fn dimensions_of_one_may_have_any_stride() {
    for (lens, strides) in [([1, 4, 1, 3], [12, 3, usize::MAX, 1]), ([1, 4, 3, 1], [12, 3, 1, usize::MAX])] {
        for step in [1, 2] {
            let shape = (lens, [2, 2], [3, 3], [1; 4], [step; 2], [1, 1]);
            let mut case = case(&shape, DataType::Float, TensorLayout::Nchw).integers();
            case.problem.input = TensorDescriptor::new(DataType::Float, &lens, &strides).unwrap();
            let ready = Ready::new(&case);
            for device in devices(1) {
                ready.check(&PLANES, &device, true);
            }
        }
    }
}
