//! Depthwise convolution with columns in the lanes against sums in f64, on shapes that hurt. Sums of small integers must come out
//! exactly.

use fuseplan_api::{ActivationMode, BatchNormMode, ConvolutionDescriptor, DataType, TensorLayout};

use super::DEPTHWISE_PLANES;
use crate::device::CpuDevice;
use crate::direct::DIRECT;
use crate::direct::tests::devices;
use crate::direct::tests::oracle::{Case, Link, Ready};

/// N, C, H, W; taps a side; padding above, left, below, right; stride.
type Shape = ([usize; 4], usize, [usize; 4], usize);

const SHAPES: &[Shape] = &[
    // One channel, two, three: pairs and what is left; lines of less than a vector, of one, of more than two
    ([1, 1, 4, 2], 3, [1; 4], 1),
    ([2, 2, 7, 7], 3, [1; 4], 1),
    ([2, 3, 7, 5], 3, [1; 4], 1),
    ([1, 5, 9, 8], 3, [1; 4], 1),
    ([1, 5, 9, 14], 3, [1; 4], 1),
    ([2, 5, 9, 16], 3, [1; 4], 1),
    ([1, 3, 6, 17], 3, [1; 4], 1),
    ([1, 2, 28, 28], 3, [1; 4], 1),
    ([2, 1, 5, 33], 3, [1; 4], 1),
    ([1, 2, 3, 75], 3, [1; 4], 1),
    // One line; images smaller than the filter; padding on one side, none, wider than the image
    ([1, 4, 1, 13], 3, [1; 4], 1),
    ([1, 2, 2, 3], 5, [4, 6, 4, 6], 1),
    ([1, 3, 4, 4], 3, [0, 9, 7, 0], 1),
    ([1, 3, 4, 20], 3, [9, 0, 0, 40], 1),
    ([1, 3, 11, 18], 3, [0; 4], 1),
    // Outputs of one pixel and of one column
    ([2, 5, 3, 3], 3, [0; 4], 1),
    ([1, 3, 7, 3], 3, [1, 0, 1, 0], 1),
    // The other filters
    ([1, 4, 13, 37], 5, [2; 4], 1),
    ([2, 3, 7, 7], 5, [2; 4], 1),
    ([1, 3, 14, 14], 7, [3; 4], 1),
    ([2, 1, 9, 40], 7, [3, 1, 0, 2], 1),
    // Strides: even and odd extents, padding as TensorFlow's, wide lines
    ([1, 6, 12, 13], 3, [1; 4], 2),
    ([2, 3, 14, 14], 3, [0, 0, 1, 1], 2),
    ([1, 2, 9, 31], 3, [1; 4], 2),
    ([1, 3, 10, 66], 3, [2, 1, 0, 3], 2),
    ([1, 3, 14, 14], 5, [2; 4], 2),
    ([2, 2, 7, 71], 5, [1, 2, 2, 1], 2),
    // Several bands
    ([1, 2, 150, 131], 3, [1; 4], 1),
    ([1, 2, 131, 150], 3, [1; 4], 2),
];

fn case(&(x, taps, pads, stride): &Shape, data_type: DataType) -> Case {
    let [above, left, below, right] = pads;
    let conv = ConvolutionDescriptor::d2().with_asymmetric_pads([above, left], [below, right]).unwrap();
    let conv = conv.with_strides([stride; 2]).unwrap().with_groups(x[1]).unwrap();
    Case::new(data_type, TensorLayout::Nchw, &x, &[x[1], 1, taps, taps], conv)
}

const TYPES: [DataType; 3] = [DataType::Float, DataType::Half, DataType::BFloat16];

/// Checks a case wherever the solver takes it; on how many devices.
fn check(ready: &Ready, devices: &[std::sync::Arc<CpuDevice>], exact: bool) -> usize {
    let takers = devices.iter().filter(|device| ready.case.is_taken(&DEPTHWISE_PLANES, device));
    takers.map(|device| ready.check(&DEPTHWISE_PLANES, device, exact)).count()
}

/// Whether one of these devices has the instructions.
fn any_takes(devices: &[std::sync::Arc<CpuDevice>], data_type: DataType) -> bool {
    devices.iter().any(|device| device.isa().loads_lanes(data_type.size()))
}

#[test]
fn integers_come_out_exactly() {
    let threads = [1, 3].map(devices);
    for (shape, data_type) in SHAPES.iter().flat_map(|shape| TYPES.map(|data_type| (shape, data_type))) {
        let case = case(shape, data_type).integers();
        let more = case.clone().link(Link::Bias).link(Link::Residual);
        let act = case.clone().link(Link::Bias).link(Link::Act(ActivationMode::Relu));
        let cases = [case, act.clone().lines_apart(), act, more.link(Link::Act(ActivationMode::Relu))];
        for ready in cases.map(|case| Ready::new(&case)) {
            for devices in &threads {
                assert!(check(&ready, devices, true) > 0 || !any_takes(devices, data_type), "{shape:?}");
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
        [2, 7, 17, 22, 24].map(|shape| &SHAPES[shape]).into_iter().flat_map(|s| chains.map(move |c| (s, c)))
    {
        for data_type in TYPES {
            let case = chain.iter().copied().fold(case(shape, data_type), Case::link);
            for case in [case.clone(), case.clone().scaled(), case.clone().spread(), case.lines_apart()] {
                assert!(check(&Ready::new(&case), &devices, false) > 0 || !any_takes(&devices, data_type));
            }
        }
    }
}

/// Images that come from memory, of which bands ask for others.
#[test]
fn large_images_come_out_exactly() {
    let devices = devices(2);
    for (taps, stride, data_type) in
        [(3, 1, DataType::Float), (3, 2, DataType::Float), (5, 1, DataType::Float), (3, 1, DataType::Half)]
    {
        let case = case(&([1, 2, 1100, 1040], taps, [taps / 2; 4], stride), data_type).integers();
        for case in [case.clone().link(Link::Bias), case.link(Link::Residual)] {
            assert!(check(&Ready::new(&case), &devices, true) > 0 || !any_takes(&devices, data_type));
        }
    }
}

/// Columns in the padding are products with 0 here, which direct convolution leaves out.
#[test]
fn bits_are_those_of_direct_convolution_for_any_number_of_threads() {
    let by_threads = [1, 2, 3, 5].map(devices);
    for shape in SHAPES {
        let case = case(shape, DataType::Float).link(Link::Norm(BatchNormMode::Spatial));
        let ready = Ready::new(&case);
        for isa in 0..by_threads[0].len() {
            let takes = case.is_taken(&DEPTHWISE_PLANES, &by_threads[0][isa]);
            assert_eq!(takes, by_threads[0][isa].isa().loads_lanes(size_of::<f32>()), "{case:?}");
            if !takes {
                continue;
            }
            let direct = ready.run(&*case.load(&DIRECT, &by_threads[0][isa]), true);
            for devices in &by_threads {
                let found = ready.run(&*case.load(&DEPTHWISE_PLANES, &devices[isa]), true);
                assert!(found == direct, "{case:?}");
            }
        }
    }
}

#[test]
fn what_is_not_taken_is_told() {
    use TensorLayout::{Nchw, Nhwc};
    let devices = devices(1);
    let takes = |data_type, layout, groups, taps: [usize; 2], strides, dilations| {
        let conv =
            ConvolutionDescriptor::d2().with_strides(strides).unwrap().with_dilations(dilations).unwrap();
        let conv = conv.with_groups(groups).unwrap();
        let case = Case::new(data_type, layout, &[1, 4, 12, 12], &[4, 4 / groups, taps[0], taps[1]], conv);
        devices.iter().any(|device| case.is_taken(&DEPTHWISE_PLANES, device))
    };
    let float = DataType::Float;
    assert_eq!(takes(float, Nchw, 4, [3, 3], [1, 1], [1, 1]), any_takes(&devices, float));
    assert!(!takes(float, Nhwc, 4, [3, 3], [1, 1], [1, 1]));
    assert!(!takes(float, Nchw, 2, [3, 3], [1, 1], [1, 1]));
    assert!(!takes(float, Nchw, 4, [3, 5], [1, 1], [1, 1]));
    assert!(!takes(float, Nchw, 4, [3, 3], [1, 2], [1, 1]));
    assert!(!takes(float, Nchw, 4, [3, 3], [1, 1], [2, 2]));
    assert!(!takes(float, Nchw, 4, [9, 9], [1, 1], [1, 1]));
    assert!(!takes(float, Nchw, 4, [7, 7], [2, 2], [1, 1]));
    for device in &devices {
        let case = case(&SHAPES[2], DataType::Half);
        assert_eq!(case.is_taken(&DEPTHWISE_PLANES, device), device.isa().loads_lanes(size_of::<u16>()));
    }
}
