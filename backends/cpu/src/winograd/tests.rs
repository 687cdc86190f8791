//! Winograd's convolution against sums in f64, on shapes that hurt.
//!
//! F(2x2) must give integers exactly. F(4x4) and F(2x2, 5x5) have irrational points, so they must come near; a wrong index is
//! off by an integer.

use std::sync::Arc;

use fuseplan_api::{
    ActivationMode, BatchNormMode, ConvolutionDescriptor, DataType, Executable, TensorLayout,
};

use super::*;
use crate::direct::DIRECT;
use crate::direct::tests::devices;
use crate::direct::tests::oracle::{Case, Link, Ready};

/// N, C, H, W; K; padding above, left, below, right; groups.
type Shape = ([usize; 4], usize, [usize; 4], usize);

/// Of 5x5 filters.
const SHAPES_OF_5: &[Shape] = &[
    ([1, 1, 1, 1], 1, [2; 4], 1),
    ([1, 4, 5, 5], 18, [0; 4], 1),
    ([2, 5, 1, 9], 4, [2; 4], 1),
    ([2, 5, 9, 1], 4, [2; 4], 1),
    ([2, 3, 2, 3], 2, [9, 7, 0, 0], 1),
    ([2, 3, 2, 3], 2, [0, 0, 9, 7], 1),
    ([1, 16, 8, 8], 32, [2; 4], 1),
    ([2, 17, 9, 7], 33, [2; 4], 1),
    ([1, 35, 13, 14], 70, [2; 4], 1),
    ([3, 8, 6, 5], 7, [0, 1, 3, 2], 1),
    ([1, 3, 7, 130], 5, [2; 4], 1),
    ([9, 4, 3, 3], 6, [2; 4], 1),
    ([1, 40, 6, 7], 36, [2; 4], 2),
];

const SHAPES: &[Shape] = &[
    // One tile and less; one pixel; images smaller than the filter; wide padding
    ([1, 1, 4, 4], 1, [1; 4], 1),
    ([1, 1, 1, 1], 1, [1; 4], 1),
    ([2, 5, 1, 9], 4, [1; 4], 1),
    ([2, 5, 9, 1], 4, [1; 4], 1),
    ([1, 3, 2, 2], 3, [3; 4], 1),
    ([1, 4, 3, 3], 18, [0; 4], 1),
    ([2, 3, 2, 3], 2, [9, 7, 0, 0], 1),
    ([2, 3, 2, 3], 2, [0, 0, 9, 7], 1),
    // Whole tiles and vectors; tails of all of them
    ([1, 16, 8, 8], 32, [1; 4], 1),
    ([2, 17, 9, 7], 33, [1; 4], 1),
    ([1, 35, 13, 14], 70, [1; 4], 1),
    ([3, 8, 6, 5], 7, [0, 1, 2, 0], 1),
    ([1, 3, 20, 31], 19, [0; 4], 1),
    // Several units a line, several blocks, many small images
    ([1, 3, 5, 130], 5, [1; 4], 1),
    ([9, 4, 3, 3], 6, [1; 4], 1),
    ([1, 130, 6, 6], 20, [1; 4], 1),
    // Groups
    ([1, 40, 6, 7], 36, [1; 4], 2),
    ([2, 12, 7, 9], 6, [1, 0, 1, 0], 6),
];

fn case(shape: &Shape, data_type: DataType, layout: TensorLayout) -> Case {
    case_of(3, shape, data_type, layout)
}

fn case_of(taps: usize, &(x, k, pads, groups): &Shape, data_type: DataType, layout: TensorLayout) -> Case {
    let [above, left, below, right] = pads;
    let conv = ConvolutionDescriptor::d2().with_asymmetric_pads([above, left], [below, right]).unwrap();
    let conv = conv.with_groups(groups).unwrap();
    Case::new(data_type, layout, &x, &[k, x[1] / groups, taps, taps], conv)
}

const TYPES: [DataType; 3] = [DataType::Float, DataType::Half, DataType::BFloat16];
const LAYOUTS: [TensorLayout; 2] = [TensorLayout::Nchw, TensorLayout::Nhwc];

/// Cuts where only huge problems are cut otherwise.
const CUT: Limits = Limits { unit: 3, private: 1, reuse: 4, alone: 1, chunk: 6 };

macro_rules! solver {
    ($size:expr, $limits:expr) => {
        CpuSolver {
            load: |solver, problem, device, _| {
                Arc::new(Convolution::new(solver, problem, $size, device, $limits)) as Arc<dyn Executable>
            },
            ..WINOGRAD
        }
    };
}

static TWO: CpuSolver = solver!(Size::Two, Limits::USUAL);
static FOUR: CpuSolver = solver!(Size::Four, Limits::USUAL);
static OF_5: CpuSolver = solver!(Size::TwoOf5, Limits::USUAL);
static CUT_OF_5: CpuSolver = solver!(Size::TwoOf5, CUT);
static CUT_TWO: CpuSolver = solver!(Size::Two, CUT);
static CUT_FOUR: CpuSolver = solver!(Size::Four, CUT);
/// Panels are dealt out wherever there are more threads than blocks, with all channels and with a few at a time.
static PARTS_TWO: CpuSolver = solver!(Size::Two, Limits { alone: usize::MAX / 8, ..Limits::USUAL });
static PARTS_CUT_TWO: CpuSolver = solver!(Size::Two, Limits { alone: usize::MAX / 8, ..CUT });

/// How far results of small integers or fractions, of at most some hundred channels, may be off.
const SLACK: f64 = 1e-3;

#[test]
fn integers_come_out() {
    let threads = [1, 3].map(devices);
    for shape in SHAPES {
        for (data_type, layout) in TYPES.iter().flat_map(|&t| LAYOUTS.map(|l| (t, l))) {
            let case = case(shape, data_type, layout).integers();
            let more = case.clone().link(Link::Bias).link(Link::Residual);
            for ready in [case, more.link(Link::Act(ActivationMode::Relu))].map(|case| Ready::new(&case)) {
                for device in threads.iter().flatten() {
                    for solver in [&TWO, &CUT_TWO, &PARTS_TWO, &PARTS_CUT_TWO] {
                        ready.check(solver, device, true);
                    }
                    for solver in [&FOUR, &CUT_FOUR] {
                        ready.check_near(solver, device, SLACK);
                    }
                }
            }
        }
    }
}

#[test]
fn integers_come_near_of_5x5_filters() {
    let threads = [1, 3].map(devices);
    for shape in SHAPES_OF_5 {
        for (data_type, layout) in TYPES.iter().flat_map(|&t| LAYOUTS.map(|l| (t, l))) {
            let case = case_of(5, shape, data_type, layout).integers();
            let more = case.clone().link(Link::Bias).link(Link::Residual);
            for ready in [case, more.link(Link::Act(ActivationMode::Relu))].map(|case| Ready::new(&case)) {
                for device in threads.iter().flatten() {
                    for solver in [&OF_5, &CUT_OF_5] {
                        ready.check_near(solver, device, SLACK);
                    }
                }
            }
        }
    }
}

#[test]
fn chains_strides_and_scales_are_as_declared() {
    use ActivationMode::{HardSwish, LeakyRelu, Tanh};
    let chains: [&[Link]; 6] = [
        &[Link::Norm(BatchNormMode::Spatial), Link::Residual, Link::Act(LeakyRelu)],
        &[Link::Act(Tanh), Link::Norm(BatchNormMode::PerActivation), Link::Bias],
        &[Link::PRelu, Link::Bias, Link::PRelu],
        &[Link::Bias, Link::Act(LeakyRelu)],
        &[Link::Bias, Link::Residual, Link::Act(LeakyRelu)],
        &[Link::Bias, Link::Residual, Link::Act(HardSwish)],
    ];
    let devices = devices(2);
    for (shape, chain) in [&SHAPES[9], &SHAPES[11]].into_iter().flat_map(|s| chains.map(move |c| (s, c))) {
        for (data_type, layout) in TYPES.iter().flat_map(|&t| LAYOUTS.map(|l| (t, l))) {
            let case = chain.iter().copied().fold(case(shape, data_type, layout), Case::link);
            for case in [case.clone(), case.clone().scaled(), case.clone().spread(), case.scattered()] {
                let ready = Ready::new(&case);
                for device in &devices {
                    for solver in [&TWO, &FOUR] {
                        ready.check_near(solver, device, SLACK);
                    }
                }
            }
            let case = chain.iter().copied().fold(case_of(5, &SHAPES_OF_5[7], data_type, layout), Case::link);
            for case in [case.clone().scaled(), case.clone().spread(), case.scattered()] {
                let ready = Ready::new(&case);
                for device in &devices {
                    ready.check_near(&OF_5, device, SLACK);
                }
            }
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let by_threads = [1, 2, 3, 5].map(devices);
    let [of_3, of_5]: [&[&CpuSolver]; 2] = [&[&TWO, &FOUR], &[&OF_5]];
    let of_3 = SHAPES.iter().map(|shape| (3, shape, of_3));
    for (taps, shape, solvers) in of_3.chain(SHAPES_OF_5.iter().map(|shape| (5, shape, of_5))) {
        for layout in LAYOUTS {
            let case = case_of(taps, shape, DataType::Float, layout).link(Link::Norm(BatchNormMode::Spatial));
            let ready = Ready::new(&case);
            for isa in 0..by_threads[0].len() {
                for &solver in solvers {
                    let run = |devices: &Vec<_>| ready.run(&*case.load(solver, &devices[isa]), true);
                    let results = by_threads.each_ref().map(run);
                    assert!(results.iter().all(|r| *r == results[0]), "{case:?}");
                }
            }
        }
    }
}

/// Where the model has little to gain, filters that may change are not transformed, so that results are direct convolution's bits.
#[test]
fn filters_that_may_change_are_computed_directly_where_little_is_gained() {
    for (shape, directly) in
        [(([1, 32, 8, 8], 32, [1; 4], 1), true), (([1, 48, 14, 14], 32, [1; 4], 1), false)]
    {
        for layout in LAYOUTS {
            let ready = Ready::new(&case(&shape, DataType::Float, layout).link(Link::Bias));
            for device in devices(2) {
                let [winograd, direct] = [&WINOGRAD, &DIRECT].map(|solver| ready.case.load(solver, &device));
                let is_direct = |constant| ready.run(&*winograd, constant) == ready.run(&*direct, constant);
                let found = [false, true].map(is_direct);
                assert_eq!(found, [directly, false], "{shape:?} on {}", device.info().arch);
                ready.check_near(&WINOGRAD, &device, SLACK);
            }
        }
    }
}

/// The largest error of an output beside direct convolution's, on layers of depths that networks have.
#[test]
fn errors_are_of_the_order_of_a_sum() {
    let mut worst = [0.0f64; 3];
    for shape in
        [([1, 64, 21, 22], 48, [1; 4], 1), ([1, 256, 9, 11], 32, [1; 4], 1), ([2, 512, 6, 7], 16, [1; 4], 1)]
    {
        for layout in LAYOUTS {
            let [of_3, of_5] = [3, 5].map(|taps| Ready::new(&case_of(taps, &shape, DataType::Float, layout)));
            let solvers = [(&of_3, &TWO), (&of_3, &FOUR), (&of_5, &OF_5)];
            for device in devices(1).iter().filter(|device| device.isa().name() != "portable") {
                for (worst, (ready, solver)) in worst.iter_mut().zip(solvers) {
                    let direct = ready.largest_error(&DIRECT, device);
                    *worst = worst.max(ready.largest_error(solver, device) / direct);
                }
            }
        }
    }
    let [two, four, of_5] = worst;
    println!(
        "largest error beside direct convolution's: F(2x2) {two:.2}, F(4x4) {four:.2}, F(2x2, 5x5) {of_5:.2}"
    );
    assert!(two < 1.0 && four < 2.5 && of_5 < 2.5, "{worst:?}");
}
