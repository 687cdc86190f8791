//! Tiles whose depth blocks share, and meet in memory, on the runtime without a GPU (`tests/fake`), which runs the kernels' text on this
//! CPU: every such configuration gives the reference's results, wherever operands lie, and the same bits twice and in a graph.

#[allow(dead_code, reason = "it serves several backends, each of which needs a part")]
#[path = "../../cuda/tests/run/plan.rs"]
mod plan;

use std::sync::{Arc, LazyLock};

use fuseplan_api::*;
use fuseplan_cpu::CpuBackend;
use fuseplan_fake_hip::Fake;
use fuseplan_rocm::RocmBackend;
use libtest_mimic::{Arguments, Failed, Trial};

use plan::{Content, Plan};

/// A device of each kind of matrix instruction.
const ARCHS: [&str; 2] = ["gfx942:sramecc+:xnack-", "gfx1100"];

/// A device and a solver of it, with the types that it is tried with.
const SOLVERS: [(u32, &str, &[DataType]); 3] = [
    (0, "rocm.conv_mfma.v1", &[DataType::Half, DataType::Float]),
    (1, "rocm.conv_wmma.v1", &[DataType::Half]),
    (0, "rocm.conv_ffma.v1", &[DataType::Float]),
];

/// Few pixels of many channels, none of whose numbers a tile's divides, with a bias, a residual and ReLU behind: filters of this extent
/// in so many groups.
fn problem(data_type: DataType, layout: TensorLayout, extent: usize, groups: usize) -> Problem {
    let of = |lens: [usize; 4]| TensorDescriptor::with_layout(data_type, layout, &lens).unwrap();
    let channels = if extent == 1 { 584 } else { 72 };
    let (input, weights) = (of([1, channels * groups, 7, 7]), of([72 * groups, channels, extent, extent]));
    let conv = ConvolutionDescriptor::d2().with_pads([extent / 2; 2]).unwrap().with_groups(groups).unwrap();
    let output = conv.forward_output(&input, &weights).unwrap();
    let ops = vec![
        Op::ConvForward { conv, weights },
        Op::BiasForward { bias: of([1, 72 * groups, 1, 1]) },
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

fn check(device: u32, solver: &str, problem: &Problem) -> Result<(), Failed> {
    let expected = reference(problem)?;
    let device = RocmBackend.open(device)?;
    let solver = RocmBackend.solvers().iter().find(|found| found.id() == solver).ok_or("no such solver")?;
    let stream = device.create_stream()?;
    let all = solver.configurations(problem, device.info());
    let in_memory = |candidate: &&Candidate| candidate.configuration.as_str().ends_with(" in memory");
    let splits: Vec<_> = all.iter().filter(in_memory).map(|candidate| &candidate.configuration).collect();
    for split in ["split 2 ", "split 4 ", "split 8 ", "split 16 "] {
        let is_one = |words: &&&Configuration| words.as_str().contains(split);
        let configuration = splits.iter().find(is_one).ok_or_else(|| format!("no {split}in {splits:?}"))?;
        let binary = solver.compile(problem, device.info(), configuration)?;
        let plan = |shift, content| Plan::of(&device, &stream, problem, *solver, &binary, shift, content);
        for shift in [0, 1] {
            let plan = plan(shift, Content::Whole);
            plan.launch(&stream);
            if plan.results(&stream) != expected {
                return Err(format!("{configuration} is wrong with pointers {shift} elements off").into());
            }
        }
        let plan = plan(0, Content::Noise);
        let bytes = [0; 2].map(|_| {
            plan.reset(&stream);
            plan.launch(&stream);
            plan.bytes(&stream)
        });
        // The graph has memory of its own, which nothing has written yet.
        let graph = Graph::capture(&*device, |stream| {
            plan.launch(stream);
            Ok::<_, BackendError>(())
        })?;
        plan.reset(&stream);
        // SAFETY: the graph is live and used by this thread alone, and operands live on.
        unsafe { graph.instantiate()?.launch(stream.raw()) }?;
        if bytes[0] != bytes[1] || bytes[0] != plan.bytes(&stream) {
            return Err(format!("{configuration} gave other bits").into());
        }
    }
    Ok(())
}

fn main() {
    let arguments = Arguments::from_args();
    let folder = std::env::temp_dir().join(format!("fuseplan-split-{}", std::process::id()));
    let _fake = Fake::install(&folder, 7).and_then(|()| Fake::open(&folder, 7)).unwrap();
    // SAFETY: there is one thread yet.
    unsafe {
        std::env::set_var("ROCM_PATH", &folder);
        std::env::set_var("FAKE_HIP_ARCHS", ARCHS.join(" "));
        std::env::set_var("FAKE_HIP_KERNELS", concat!(env!("CARGO_TARGET_TMPDIR"), "/split"));
    }
    let mut trials = Vec::new();
    for (device, solver, data_types) in SOLVERS {
        for &data_type in data_types {
            for layout in [TensorLayout::Nchw, TensorLayout::Nhwc] {
                for (extent, groups) in [(1, 1), (3, 2)] {
                    let name = format!("{solver}.{data_type}.{layout}.{extent}x{extent}");
                    let problem = problem(data_type, layout, extent, groups);
                    let trial = Trial::test(name, move || check(device, solver, &problem));
                    trials.push(trial.with_ignored_flag(!Fake::runs_kernels()));
                }
            }
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    let _ = std::fs::remove_dir_all(&folder);
    conclusion.exit();
}
