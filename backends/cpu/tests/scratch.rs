//! Scratch memory has a bound whatever the geometry is. A program of its own, because it counts the memory of all
//! threads; one test, because tests at the same time would count each other's.

mod common;
#[path = "../../../tests/common/counting.rs"]
mod counting;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::*;
use counting::{LIVE, PEAK};
use fuseplan_api::operands::{BiasForward, ConvForward};
use fuseplan_api::*;
use fuseplan_cpu::{CpuBackend, open_with_threads};

const THREADS: usize = 2;

/// Bytes that each thread may have besides what grows with the operands: packed input and sums.
const FIXED: usize = 24 << 20;

/// Packed weights and tables of channels are f32, in whole vectors; the operands may be one element of 16 bits.
const PER_OPERAND_BYTE: usize = 40;

struct Geometry {
    lens: [usize; 4],
    filters: [usize; 4],
    pads: [usize; 2],
    strides: [usize; 2],
    dilations: [usize; 2],
    groups: usize,
}

impl Geometry {
    fn plan(&self, data_type: DataType, layout: TensorLayout, random: &mut Random) -> Option<Plan> {
        let conv = ConvolutionDescriptor::d2()
            .with_pads(self.pads)
            .ok()?
            .with_strides(self.strides)
            .ok()?
            .with_dilations(self.dilations)
            .ok()?;
        let conv = conv.with_groups(self.groups).ok()?;
        let input = TensorDescriptor::with_layout(data_type, layout, &self.lens).ok()?;
        let weights = TensorDescriptor::with_layout(data_type, layout, &self.filters).ok()?;
        let output = conv.forward_output(&input, &weights).ok()?;
        if output.element_count() > 1 << 16 {
            return None;
        }
        let plan = Plan::new(Tensor::new(input, || random.real()));
        let plan = plan.then(Step::Conv { conv, weights: Tensor::new(weights, || random.real()) });
        Some(plan.then_bias(|| random.real()))
    }

    /// On every solver that takes it: the results, the memory that a run asks for, the time. False where it is no
    /// convolution.
    fn check(&self, data_type: DataType, layout: TensorLayout, seed: u64) -> bool {
        let on = |solver| self.check_on(solver, data_type, layout, seed);
        // A thread of its own finds no scratch memory of another solver's.
        let on = |solver| std::thread::scope(|scope| scope.spawn(|| on(solver)).join().unwrap());
        CpuBackend.solvers().iter().filter(|solver| on(solver.id())).count() > 0
    }

    fn check_on(&self, solver: &str, data_type: DataType, layout: TensorLayout, seed: u64) -> bool {
        let Some(plan) = self.plan(data_type, layout, &mut Random::new(seed)) else { return false };
        let (problem, device) = (plan.problem(), open_with_threads(THREADS).unwrap());
        let takes = |s: &&&dyn Solver| s.id() == solver && s.applies(&problem, device.info()).is_ok();
        if CpuBackend.solvers().iter().find(takes).is_none() {
            return false;
        }
        let filled = |tensor: &Tensor| Buffer::filled(&tensor.desc, &tensor.values);
        let [(Step::Conv { weights, .. }, _), (Step::Bias(bias), _)] = plan.steps.as_slice() else {
            unreachable!()
        };
        let operands = [&plan.input.desc, &plan.output, &weights.desc].map(TensorDescriptor::bytes);
        let allowed = THREADS * FIXED + PER_OPERAND_BYTE * operands.iter().sum::<usize>();
        let (mut input, mut weights, mut bias) = (filled(&plan.input), filled(weights), filled(bias));
        let mut output = Buffer::poisoned(&plan.output);
        let ops =
            [ConvForward { weights: weights.pointer() }.into(), BiasForward { bias: bias.pointer() }.into()];
        let before = LIVE.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let start = Instant::now();
        run(&*load(&problem, solver, &device), input.pointer(), output.pointer(), &ops);
        let (time, peak) = (start.elapsed(), PEAK.load(Ordering::Relaxed) - before);
        plan.oracle().assert_holds(&output.values(), &problem);
        output.assert_gaps_untouched();
        assert!(peak <= allowed, "{solver} took {peak} bytes, of {allowed}, for {problem}");
        assert!(time < Duration::from_secs(20), "{solver} took {time:?} for {problem}");
        true
    }
}

#[test]
fn memory_and_time_have_a_bound() {
    let random = &mut Random::new(7);
    let types = [DataType::Float, DataType::Half, DataType::BFloat16];
    let layouts = [TensorLayout::Nchw, TensorLayout::Nhwc];
    let plain = |lens, filters| Geometry {
        lens,
        filters,
        pads: [0; 2],
        strides: [1; 2],
        dilations: [1; 2],
        groups: 1,
    };
    const FAR: usize = 10_000_000;
    let wide = |width: bool| Geometry {
        pads: if width { [0, FAR] } else { [FAR, 0] },
        dilations: if width { [1, FAR] } else { [FAR, 1] },
        ..plain([1, 64, 1, 1], if width { [64, 64, 1, 3] } else { [64, 64, 3, 1] })
    };
    let named = [
        // One pixel under the middle of three taps that are far apart.
        wide(true),
        wide(false),
        Geometry { lens: [1, 64, 1, 1], filters: [64, 1, 1, 3], groups: 64, ..wide(true) },
        Geometry { lens: [1, 64, 1, 1], filters: [64, 2, 1, 3], groups: 32, ..wide(true) },
        // A stride as wide.
        Geometry { strides: [1, FAR], ..wide(true) },
        // A long line of padding, with many channels and one filter.
        Geometry { pads: [0, 30_000], ..plain([1, 600, 1, 1], [1, 600, 1, 3]) },
        // Many taps over one pixel.
        Geometry { pads: [0, 9_000], ..plain([1, 16, 1, 1], [2, 16, 1, 9_001]) },
        Geometry { pads: [9_000, 0], ..plain([1, 16, 1, 1], [2, 16, 9_001, 1]) },
        // More channels than can be packed at once.
        plain([1, 300_000, 4, 4], [1, 300_000, 1, 1]),
        plain([1, 1 << 15, 5, 5], [3, 1 << 15, 3, 3]),
        // A long line.
        Geometry { pads: [1, 1], ..plain([1, 2, 1, 60_000], [1, 2, 3, 3]) },
    ];
    for geometry in &named {
        for (layout, data_type) in layouts.iter().flat_map(|&l| types[..2].iter().map(move |&t| (l, t))) {
            assert!(geometry.check(data_type, layout, random.next()), "{:?}", geometry.lens);
        }
    }
    let mut tried = 0;
    let start = Instant::now();
    while tried < 80 && start.elapsed() < Duration::from_secs(30) {
        let pick = |random: &mut Random, from: &[usize]| from[random.below(from.len())];
        let far = |random: &mut Random, least: usize| {
            let most = pick(random, &[1, 4, 100, 10_000, FAR]);
            least + random.below(most)
        };
        let groups = pick(random, &[1, 1, 1, 2, 8, 32]);
        let (inputs, outputs) = (pick(random, &[1, 2, 3, 17, 64, 300]), pick(random, &[1, 1, 2, 5, 33]));
        let taps = [pick(random, &[1, 2, 3, 7]), pick(random, &[1, 2, 3, 50])];
        let spatial = [pick(random, &[1, 2, 5]), pick(random, &[1, 2, 9, 30])];
        let dilations = [far(random, 1), far(random, 1)];
        // As much padding as the filter needs, or a little more.
        let pads = [0, 1].map(|d| {
            let reach = (taps[d] - 1) * dilations[d] + 1;
            reach.saturating_sub(spatial[d]).div_ceil(2) + far(random, 0).min(spatial[d] * 20)
        });
        let geometry = Geometry {
            lens: [1 + random.below(2), inputs * groups, spatial[0], spatial[1]],
            filters: [outputs * groups, inputs, taps[0], taps[1]],
            pads,
            strides: [far(random, 1), far(random, 1)],
            dilations,
            groups,
        };
        let (data_type, layout) = (types[random.below(3)], layouts[random.below(2)]);
        tried += usize::from(geometry.check(data_type, layout, random.next()));
    }
    assert!(tried > 10, "only {tried} of random geometries in half a minute");
}
