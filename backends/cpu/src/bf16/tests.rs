//! What only the solvers do that multiply bf16. Direct convolution's tests put it to their shapes as well.

use std::sync::Arc;

use fuseplan_api::{ActivationMode, DataType, Executable, TensorLayout};

use super::product::Ahead;
use super::*;
use crate::direct::tests::oracle::{Link, Ready};
use crate::direct::tests::{LAYOUTS, SHAPES, Shape, TYPES, case, devices};

/// The device with the matrix unit, if this processor has it.
fn device(threads: usize) -> Option<Arc<CpuDevice>> {
    devices(threads).into_iter().find(|device| device.isa() == Isa::Amx)
}

/// The devices whose instructions multiply bf16.
fn multiplying(threads: usize) -> impl Iterator<Item = Arc<CpuDevice>> {
    devices(threads).into_iter().filter(|device| device.isa() >= Isa::Avx512Bf16)
}

/// Cuts where only huge problems are cut otherwise.
const CUT: Limits = Limits { pack: 4000, waiting: 40, span: 9, least_span: 3 };

/// Several images in an item.
const BATCHES: Limits = Limits { waiting: 4096, ..Limits::USUAL };

macro_rules! solver {
    ($solver:ident, $unit:expr, $limits:expr) => {
        CpuSolver {
            load: |solver, problem, device, _| {
                Arc::new(Convolution::new(solver, problem, device, $unit, $limits)) as Arc<dyn Executable>
            },
            ..$solver
        }
    };
}

static CUT_AMX: CpuSolver = solver!(AMX, Unit::Matrix, CUT);
static BATCHED_AMX: CpuSolver = solver!(AMX, Unit::Matrix, BATCHES);
static CUT_VECTORS: CpuSolver = solver!(AVX512_BF16, Unit::Vector, CUT);
static BATCHED_VECTORS: CpuSolver = solver!(AVX512_BF16, Unit::Vector, BATCHES);

#[test]
fn bands_spans_and_batches_give_the_same_numbers() {
    let more: [Shape; 11] = [
        // Several lines in spans of which the last is narrower, with columns between them.
        ([1, 24, 9, 17], [20, 3, 3], [1, 1], [1, 1], [1, 1], 1),
        // Whole tiles deep, in spans of lines that may be read where they are, and strides with more phases than taps.
        ([1, 32, 8, 12], [20, 1, 1], [0, 0], [1, 1], [1, 1], 1),
        ([1, 33, 17, 19], [18, 3, 4], [2, 1], [4, 6], [3, 4], 1),
        // Cut into lines, of which the last is shorter than where some spans begin.
        ([1, 40, 18, 17], [20, 1, 1], [0, 0], [1, 1], [1, 1], 1),
        // In place, with a last line of fewer than two tiles; several tiles and panels.
        ([1, 64, 13, 11], [70, 1, 1], [0, 0], [1, 1], [1, 1], 1),
        ([5, 32, 3, 7], [48, 1, 1], [0, 0], [1, 1], [1, 1], 1),
        // Width taps side by side, and too many channels for that.
        ([2, 10, 9, 40], [33, 3, 3], [1, 1], [1, 1], [1, 1], 1),
        ([1, 96, 5, 21], [40, 3, 3], [1, 1], [2, 2], [1, 1], 1),
        // Deep enough for as many pixels as there are registers for, by two vectors and by one, alone and with a rest.
        ([1, 64, 4, 28], [40, 3, 3], [1, 1], [1, 1], [1, 1], 1),
        ([1, 64, 3, 19], [16, 3, 3], [1, 1], [1, 1], [1, 1], 1),
        ([1, 256, 7, 14], [48, 1, 1], [0, 0], [1, 1], [1, 1], 1),
    ];
    for device in multiplying(2) {
        let (mut cases, mut spans, mut batches) = (0, 0, 0);
        for shape in SHAPES.iter().chain(&more) {
            for (data_type, layout) in TYPES.iter().flat_map(|&t| LAYOUTS.map(|l| (t, l))) {
                let bare = case(shape, data_type, layout).integers();
                let chain = [Link::Bias, Link::Residual, Link::Act(ActivationMode::Relu)];
                for ready in
                    [Ready::new(&bare), Ready::new(&chain.into_iter().fold(bare.clone(), |c, l| c.link(l)))]
                {
                    for solver in [&AMX, &CUT_AMX, &BATCHED_AMX, &AVX512_BF16, &CUT_VECTORS, &BATCHED_VECTORS]
                    {
                        if !ready.case.is_taken(solver, &device) {
                            continue;
                        }
                        ready.check(solver, &device, true);
                        let detail = ready.case.load(solver, &device).info().detail.clone();
                        cases += 1;
                        spans += usize::from(detail.contains("spans"));
                        batches += usize::from(!detail.contains("batches of 1 images"));
                    }
                }
            }
        }
        let arch = device.isa().name();
        assert!(cases >= 12 * (SHAPES.len() + more.len()), "{cases} on {arch}");
        assert!(spans > 60 && batches > 60, "{spans} in spans, {batches} in batches on {arch}");
    }
}

#[test]
fn outputs_and_residuals_that_are_asked_for_are_the_same_numbers() {
    // Each has more than 2 MiB in both types, channels that are no whole lines of a cache, and a last tile of fewer pixels.
    let shape: Shape = ([1, 8, 153, 97], [83, 1, 1], [0, 0], [1, 1], [1, 1], 1);
    for device in multiplying(2) {
        for data_type in [DataType::Float, DataType::BFloat16] {
            let bare = case(&shape, data_type, TensorLayout::Nhwc).integers().link(Link::Bias);
            for case in [bare.clone(), bare.link(Link::Residual).link(Link::Act(ActivationMode::Relu))] {
                for solver in [&AMX, &AVX512_BF16] {
                    if case.is_taken(solver, &device) {
                        Ready::new(&case).check(solver, &device, true);
                    }
                }
            }
        }
    }
}

#[test]
fn what_is_no_sum_of_parts_is_what_direct_convolution_makes_of_it() {
    let shape: Shape = ([2, 40, 6, 7], [35, 3, 3], [1, 1], [1, 1], [1, 1], 1);
    let taken =
        multiplying(2).flat_map(|device| [&AMX, &AVX512_BF16].map(|solver| (Arc::clone(&device), solver)));
    let cases = taken
        .flat_map(|of| TYPES.iter().flat_map(|&t| LAYOUTS.map(|l| (t, l))).map(move |c| (of.clone(), c)));
    for ((device, solver), (data_type, layout)) in cases {
        if !case(&shape, data_type, layout).is_taken(solver, &device) {
            continue;
        }
        for value in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::from(f32::MAX)] {
            for (of_weights, at) in [(false, 0), (false, 777), (true, 11)] {
                let case = case(&shape, data_type, layout).integers();
                let ready = Ready::new(&case.link(Link::Bias)).with(of_weights, at, value);
                let direct = ready.outputs(&*ready.case.load(&DIRECT, &device), false);
                assert!(direct.iter().any(|y| !y.is_finite() || y.abs() > 1e30), "{data_type} {value}");
                let executable = ready.case.load(solver, &device);
                for constant in [false, true] {
                    let ours = ready.outputs(&*executable, constant);
                    // Lines of padding are zeros here, of which such a weight makes NaN.
                    let may_be_nan = of_weights && data_type == DataType::BFloat16;
                    let same = |(a, b): (&f64, &f64)| a == b || b.is_nan() && (may_be_nan || a.is_nan());
                    let different = direct.iter().zip(&ours).filter(|&pair| !same(pair)).count();
                    assert!(different == 0, "{different} of {}; {data_type} {layout} {value}", ours.len());
                }
            }
        }
    }
}

#[test]
fn errors_of_f32_are_no_larger_than_direct_convolutions() {
    let Some(device) = device(2) else { return };
    let shapes: [Shape; 4] = [
        ([1, 64, 14, 14], [64, 3, 3], [1, 1], [1, 1], [1, 1], 1),
        ([1, 256, 9, 9], [48, 3, 3], [1, 1], [1, 1], [1, 1], 1),
        ([1, 512, 6, 6], [64, 1, 1], [0, 0], [1, 1], [1, 1], 1),
        ([1, 32, 16, 16], [64, 5, 5], [2, 2], [1, 1], [1, 1], 1),
    ];
    for shape in &shapes {
        for layout in LAYOUTS {
            let ready = Ready::new(&case(shape, DataType::Float, layout));
            let [ours, direct] = [&AMX, &DIRECT].map(|solver| ready.largest_error(solver, &device));
            assert!(ours <= direct, "{ours:e}, direct {direct:e}; {shape:?} {layout}");
        }
    }
}

#[test]
fn tiny_values_are_lost_only_below_the_smallest_normal_number() {
    let Some(device) = device(1) else { return };
    let shape: Shape = ([1, 64, 2, 20], [8, 1, 1], [0, 0], [1, 1], [1, 1], 1);
    for layout in LAYOUTS {
        let mut ready = Ready::new(&case(&shape, DataType::Float, layout));
        for at in 0..64 * 40 {
            let value = f64::from(f32::MIN_POSITIVE) * (at % 97) as f64 / 24.0;
            ready = ready.with(false, at, value);
        }
        let [ours, direct] =
            [&AMX, &DIRECT].map(|solver| ready.outputs(&*ready.case.load(solver, &device), false));
        for (a, b) in ours.iter().zip(&direct) {
            // 64 products of factors below 1, of each of which less than that is lost.
            assert!((a - b).abs() <= 64.0 * f64::from(f32::MIN_POSITIVE), "{a:e}, directly {b:e}");
        }
    }
}

/// Products ask for all filters of the next panel among them, each line once.
#[test]
fn products_share_what_is_asked_for() {
    for (bytes, count, steps) in
        [(64, 1, 1), (6 << 10, 1, 6), (196_608, 7, 192), (884_736, 2, 864), (4096, 3, 432)]
    {
        let mut asked = 0;
        for product in 0..count {
            let Ahead { from, bytes: left, lines } =
                Ahead::part(std::ptr::null(), bytes, [product, count], steps);
            assert_eq!(from.addr(), asked, "{bytes} bytes, product {product}");
            assert_eq!(left, bytes - asked);
            asked += left.min(lines * steps * 64);
        }
        assert_eq!(asked, bytes, "in {count} products of {steps} steps");
    }
}
