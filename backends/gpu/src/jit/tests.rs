use std::cell::RefCell;
use std::sync::Mutex;

use fuseplan_api::null::NullBackend;
use fuseplan_api::*;

use super::*;
use crate::arguments::{FIRST_OP, MAX_WORDS, OP_WORDS};
use crate::constraint::MAX_OPS;
use crate::direct::direct;
use crate::{INFERENCE, OPERATOR_COUNT, Probe, Target};

/// A runtime that compiles a text to itself and remembers what is launched.
#[derive(Debug)]
struct Double;

#[derive(Debug)]
struct Launched {
    image: String,
    geometry: Geometry,
    arguments: Mutex<Vec<u64>>,
}

impl Runtime for Double {
    type Function = Arc<Launched>;

    const VENDOR: &'static str = "";

    fn units(_arch: &str) -> usize {
        1
    }

    fn products(_data_type: DataType, _arch: &str) -> Probe {
        Probe::fma::<Self>()
    }

    fn compile(source: &str, arch: &str) -> Result<Arc<[u8]>, CompileFailure> {
        match arch {
            "broken" => Err(CompileFailure::Log("line 1: no".into())),
            _ => Ok(source.as_bytes().into()),
        }
    }

    fn load(_device: &dyn Device, image: &[u8], geometry: &Geometry) -> Result<Self::Function, BackendError> {
        let image = String::from_utf8(image.into()).unwrap();
        let launched = Arc::new(Launched { image, geometry: *geometry, arguments: Mutex::default() });
        LAST.set(Some(launched.clone()));
        Ok(launched)
    }
}

thread_local! {
    /// What this thread loaded last.
    static LAST: RefCell<Option<Arc<Launched>>> = const { RefCell::new(None) };
}

impl Function for Arc<Launched> {
    fn resources(&self) -> Resources {
        let Geometry { grid, block, shared } = self.geometry;
        Resources { blocks: grid, threads: block, registers: 32, local: 0, shared, resident: Some(2) }
    }

    unsafe fn launch(&self, _: RawStream, _: &Geometry, arguments: &[u64]) -> Result<(), BackendError> {
        self.arguments.lock().unwrap().extend_from_slice(arguments);
        Ok(())
    }
}

/// A device of one unit.
const ALONE: Target = Target { units: 1, cluster: None };

static SOLVER: JitSolver<Double> =
    JitSolver::new("null.direct.v1", Algorithm::Direct, &[INFERENCE, OPERATOR_COUNT], |problem, _| {
        direct("// vendor", problem)
    });

fn relu(lens: [usize; 4], count: usize) -> Problem {
    let x = TensorDescriptor::nchw(DataType::Half, lens).unwrap();
    let ops = vec![Op::ActivationForward { mode: ActivationMode::Relu }; count];
    Problem { input: x, output: x, ops, math: MathMode::Precise }
}

#[test]
fn a_binary_is_loaded_only_for_what_it_was_made() {
    let device = NullBackend.open(0).unwrap();
    let good = SOLVER.compile(&relu([1, 2, 3, 4], 1), device.info()).unwrap();
    let load = |problem: &Problem, binary: &Binary| SOLVER.load(problem, &device, binary).map(drop);
    assert_eq!(load(&relu([1, 2, 3, 4], 1), &good), Ok(()));
    // Sizes are arguments: one binary for all shapes. Operators are part of the text.
    assert_eq!(load(&relu([5, 6, 7, 8], 1), &good), Ok(()));
    for (count, binary, reason) in [
        (2, good.clone(), "it was made from another text"),
        (1, Binary { bytes: good.bytes[..16].into(), ..good.clone() }, "it is not of this format"),
        (1, Binary { bytes: Vec::new(), ..good.clone() }, "it is not of this format"),
        (1, Binary { bytes: b"ELF and so on and so".to_vec(), ..good.clone() }, "it is not of this format"),
        (1, Binary { arch: "sm_80".into(), ..good.clone() }, "it was made for sm_80, the device is null"),
        (1, Binary { solver: "null.b.v1".into(), ..good.clone() }, "it was made by null.b.v1"),
    ] {
        let error = BuildError::Binary { solver: "null.direct.v1", reason: reason.into() };
        assert_eq!(load(&relu([1, 2, 3, 4], count), &binary), Err(error));
    }
}

#[test]
fn an_executable_says_its_launch() {
    let device = NullBackend.open(0).unwrap();
    let problem = relu([1, 2, 300, 400], 1);
    let binary = SOLVER.compile(&problem, device.info()).unwrap();
    let executable = SOLVER.load(&problem, &device, &binary).unwrap();
    let Kernel { geometry, detail, .. } = SOLVER.kernel(&problem, "null");
    let resources = executable.info().resources.unwrap();
    assert_eq!((resources.blocks, resources.threads), (geometry.grid, geometry.block));
    assert_eq!(executable.info().detail, detail);
}

#[test]
fn the_compilers_log_reaches_the_caller() {
    let target = DeviceInfo { arch: "broken".into(), ..NullBackend.target("").unwrap() };
    let error = SOLVER.compile(&relu([1, 1, 1, 1], 1), &target).unwrap_err();
    assert_eq!(error.to_string(), "null.direct.v1: the kernel does not compile: line 1: no");
}

#[test]
fn arguments_are_laid_out_as_the_text_declares_them() {
    let device = NullBackend.open(0).unwrap();
    let x = TensorDescriptor::nchw(DataType::Float, [2, 3, 4, 5]).unwrap();
    let ops = vec![
        Op::BatchNormInference { mode: BatchNormMode::Spatial },
        Op::ActivationForward { mode: ActivationMode::Clamp },
    ];
    let problem = Problem { input: x, output: x, ops, math: MathMode::Precise };
    let binary = SOLVER.compile(&problem, device.info()).unwrap();
    let executable = SOLVER.load(&problem, &device, &binary).unwrap();
    let at = |address: usize| std::ptr::without_provenance::<f32>(address);
    let ops = [
        OpArgs {
            alpha: 2.0,
            beta: 0.0,
            kind: OpArgsKind::BatchNormInference {
                scale: at(11),
                bias: at(12),
                mean: at(13),
                variance: at(14),
                epsilon: 0.5,
            },
        },
        OpArgs {
            alpha: 3.0,
            beta: 4.0,
            kind: OpArgsKind::ActivationForward { params: ActivationParams::new(5.0, 6.0, 7.0) },
        },
    ];
    let args = RunArgs {
        input: at(1).cast(),
        output: at(2).cast_mut().cast(),
        ops: &ops,
        workspace: std::ptr::null_mut(),
    };
    // SAFETY: the double's launch reads nothing.
    unsafe { executable.run(std::ptr::null_mut(), &args) }.unwrap();
    let launched = LAST.take().unwrap();
    let found = launched.arguments.lock().unwrap().clone();
    let two = |low: f32, high: f32| u64::from(low.to_bits()) | u64::from(high.to_bits()) << 32;
    let expected =
        [1, 2, two(4.0, 0.0), 11, 12, 13, 14, two(2.0, 0.5), 0, 0, 0, 0, 0, two(3.0, 5.0), two(6.0, 7.0)];
    assert_eq!(found[..15], expected);
    // One word for each field of the text's `struct Shape`, in its order: out_h and out_w come first.
    let shape = launched.image.split("struct Shape {").nth(1).unwrap().split('}').next().unwrap();
    assert_eq!(found.len() - 15, shape.matches("Size ").count());
    assert_eq!(found[15..18], [4, 5, 20]);
}

#[test]
fn the_longest_plan_fits_a_kernels_arguments() {
    let x = TensorDescriptor::nchw(DataType::Float, [2, 16, 4, 5]).unwrap();
    let weights = TensorDescriptor::nchw(DataType::Float, [16, 16, 1, 1]).unwrap();
    let bias = TensorDescriptor::nhwc(DataType::Float, [2, 16, 4, 5]).unwrap();
    let conv = ConvolutionDescriptor::new_2d([0, 0], [1, 1], [1, 1]).unwrap();
    let mut ops = vec![Op::ConvForward { conv, weights }];
    ops.resize(MAX_OPS, Op::BiasForward { bias });
    let mut problem = Problem { input: x, output: x, ops, math: MathMode::Precise };
    let info = NullBackend.target("").unwrap();
    SOLVER.applies(&problem, &info).unwrap();
    for kernel in [direct("", &problem), crate::implicit_gemm("", &problem, &crate::ffma(), &ALONE)] {
        assert!(FIRST_OP + OP_WORDS * MAX_OPS + kernel.sizes.len() <= MAX_WORDS, "{}", kernel.sizes.len());
    }
    problem.ops.push(Op::BiasForward { bias });
    let refusal = SOLVER.applies(&problem, &info).unwrap_err().to_string();
    assert_eq!(refusal, "null.direct.v1: number of operators is 33, accepted: at most 32");
}
