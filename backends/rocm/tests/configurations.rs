//! Configurations that a plan does not get by itself, on the runtime without a GPU (`tests/fake`), which runs the kernels' text on this
//! CPU: tiles whose depth blocks share, and meet in memory, and teams of a matrix and vectors. Each gives the reference's
//! results, wherever operands lie, and the same bits twice, in a graph, and with operands elsewhere.

#[allow(dead_code, reason = "it serves several backends, each of which needs a part")]
#[path = "../../cuda/tests/run/plan.rs"]
mod plan;

use std::sync::{Arc, LazyLock};

use fuseplan_api::*;
use fuseplan_cpu::CpuBackend;
use fuseplan_fake_hip::Fake;
use fuseplan_rocm::RocmBackend;
use libtest_mimic::{Arguments, Failed, Trial};

use plan::{Content, Plan, checked};

/// A device of each kind of matrix instruction.
const ARCHS: [&str; 2] = ["gfx942:sramecc+:xnack-", "gfx1100"];

/// A device and a solver of it whose blocks meet in memory, with the types that it is tried with.
const MEETING: [(u32, &str, &[DataType]); 3] = [
    (0, "rocm.conv_mfma.v1", &[DataType::Half, DataType::Float]),
    (1, "rocm.conv_wmma.v1", &[DataType::Half]),
    (0, "rocm.conv_ffma.v1", &[DataType::Float]),
];

/// Few pixels of many channels, none of whose numbers a tile's divides, with a bias, a residual and ReLU behind: filters of this extent
/// in so many groups.
fn deep(data_type: DataType, layout: TensorLayout, extent: usize, groups: usize) -> Problem {
    let of = |lens: [usize; 4]| TensorDescriptor::with_layout(data_type, layout, &lens).unwrap();
    let channels = if extent == 1 { 584 } else { 72 };
    let (input, weights) = (of([1, channels * groups, 7, 7]), of([72 * groups, channels, extent, extent]));
    let conv = ConvolutionDescriptor::d2().with_pads([extent / 2; 2]).unwrap().with_groups(groups).unwrap();
    chain(input, conv, weights)
}

/// Of a few pixels: a window as large as the image, or one channel after another of two groups, whose filters have so many elements
/// between them.
fn few_pixels(data_type: DataType, window: bool, gap: usize) -> Problem {
    let of = |lens: [usize; 4]| TensorDescriptor::nhwc(data_type, lens).unwrap();
    let (input, lens, groups) = if window {
        (of([2, 40, 3, 2]), [13, 40, 3, 2], 1)
    } else {
        (of([3, 264, 1, 3]), [22, 132, 1, 1], 2)
    };
    let mut strides = of(lens).strides().unwrap().to_vec();
    strides[0] += gap;
    let weights = TensorDescriptor::new(data_type, &lens, &strides).unwrap();
    chain(input, ConvolutionDescriptor::d2().with_groups(groups).unwrap(), weights)
}

/// A convolution with a bias, a residual and ReLU behind it.
fn chain(input: TensorDescriptor, conv: ConvolutionDescriptor, weights: TensorDescriptor) -> Problem {
    let output = conv.forward_output(&input, &weights).unwrap();
    let ops = vec![
        Op::ConvForward { conv, weights },
        Op::BiasForward { bias: output.like(&[1, output.lens()[1], 1, 1]).unwrap() },
        Op::BiasForward { bias: output },
        Op::ActivationForward { mode: ActivationMode::Relu },
    ];
    Problem { input, output, ops, math: MathMode::Precise }
}

/// What the CPU backend gives for the same operands, by the plainest of its solvers.
fn reference(problem: &Problem) -> Result<Vec<f32>, Failed> {
    static CPU: LazyLock<Arc<dyn Device>> = LazyLock::new(|| CpuBackend.open(0).unwrap());
    let stream = CPU.create_stream()?;
    let solver = CpuBackend.solvers().last().ok_or("no solver")?;
    let plan = Plan::new(&CPU, &stream, problem, *solver, 0, Content::Whole);
    plan.launch(&stream);
    let results = plan.results(&stream);
    let mut several = results.clone();
    several.sort_by(f32::total_cmp);
    several.dedup();
    if several.len() < 4 { Err(format!("results are {several:?}").into()) } else { Ok(results) }
}

/// Which configurations of a problem are tried.
#[derive(Clone, Copy)]
enum Tried {
    /// One for each number of blocks that meet in memory.
    Splits,
    /// One in so many.
    OneIn(usize),
}

impl Tried {
    fn of(self, all: &[Candidate]) -> Result<Vec<&Configuration>, Failed> {
        let all = all.iter().map(|candidate| &candidate.configuration);
        match self {
            Tried::OneIn(many) => Ok(all.step_by(many).collect()),
            Tried::Splits => ["split 2 ", "split 4 ", "split 8 ", "split 16 "]
                .into_iter()
                .map(|split| format!("{split}in memory"))
                .map(|end| {
                    let mut all = all.clone();
                    all.find(|words| words.as_str().ends_with(&end)).ok_or_else(|| format!("no {end}").into())
                })
                .collect(),
        }
    }
}

fn check(device: u32, solver: &str, problem: &Problem, tried: Tried) -> Result<(), Failed> {
    let expected = reference(problem)?;
    let device = RocmBackend.open(device)?;
    let solver = RocmBackend.solvers().iter().find(|found| found.id() == solver).ok_or("no such solver")?;
    let stream = device.create_stream()?;
    let all = solver.configurations(problem, device.info());
    for configuration in tried.of(&all)? {
        let binary = solver.compile(problem, device.info(), configuration)?;
        let of = |shift, content| Plan::of(&device, &stream, problem, *solver, &binary, shift, content);
        let (plan, bytes) = checked(of, &stream, |results| *results == expected, true)
            .map_err(|reason| format!("{configuration} {reason}"))?;
        // The graph has memory of its own, which nothing has written yet.
        let graph = Graph::capture(&*device, |stream| {
            plan.launch(stream);
            Ok::<_, BackendError>(())
        })?;
        plan.reset(&stream);
        // SAFETY: the graph is live and used by this thread alone, and operands live on.
        unsafe { graph.instantiate()?.launch(stream.raw()) }?;
        if bytes != plan.bytes(&stream) {
            return Err(format!("{configuration} gave other bits in a graph").into());
        }
    }
    Ok(())
}

fn main() {
    let arguments = Arguments::from_args();
    let folder = std::env::temp_dir().join(format!("fuseplan-configurations-{}", std::process::id()));
    let _fake = Fake::install(&folder, 7).and_then(|()| Fake::open(&folder, 7)).unwrap();
    // SAFETY: there is one thread yet.
    unsafe {
        std::env::set_var("ROCM_PATH", &folder);
        std::env::set_var("FAKE_HIP_ARCHS", ARCHS.join(" "));
        std::env::set_var("FAKE_HIP_KERNELS", concat!(env!("CARGO_TARGET_TMPDIR"), "/configurations"));
    }
    let runs_kernels = Fake::runs_kernels();
    if !runs_kernels {
        println!("ignored: all cases because there is no clang++ of version 19 or later");
    }
    let mut trials = Vec::new();
    let mut add = |name: String, device, solver, problem: Problem, tried| {
        let trial = Trial::test(name, move || check(device, solver, &problem, tried));
        trials.push(trial.with_ignored_flag(!runs_kernels));
    };
    for (device, solver, data_types) in MEETING {
        for &data_type in data_types {
            for layout in [TensorLayout::Nchw, TensorLayout::Nhwc] {
                for (extent, groups) in [(1, 1), (3, 2)] {
                    let name = format!("{solver}.{data_type}.{layout}.{extent}x{extent}");
                    add(name, device, solver, deep(data_type, layout, extent, groups), Tried::Splits);
                }
            }
        }
    }
    // Filters that begin at multiples of a vector of 16 bytes, and at those of smaller ones or of single elements.
    for (data_type, window, gap) in [
        (DataType::Half, true, 0),
        (DataType::Half, true, 3),
        (DataType::Half, false, 4),
        (DataType::Float, true, 2),
        (DataType::Float, false, 0),
    ] {
        let solver = "rocm.conv_gemv.v1";
        let shape = if window { "window" } else { "groups" };
        let name = format!("{solver}.{data_type}.{shape}.gap{gap}");
        add(name, 0, solver, few_pixels(data_type, window, gap), Tried::OneIn(4));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    let _ = std::fs::remove_dir_all(&folder);
    conclusion.exit();
}
