//! A plan with operands on a device. They are such that results are exact: whole numbers, batches whose means are
//! whole and whose variances are 1.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use fuseplan_api::*;
use half::{bf16, f16};

/// Memory of a device that is given back: a tensor or list some elements behind where the allocation starts.
pub(crate) struct Buffer {
    device: Arc<dyn Device>,
    base: *mut c_void,
    /// What it is filled with.
    pub(crate) bytes: Vec<u8>,
    data_type: DataType,
    shift: usize,
}

impl Buffer {
    fn of(
        device: &Arc<dyn Device>,
        stream: &Stream,
        data_type: DataType,
        bytes: Vec<u8>,
        shift: usize,
    ) -> Self {
        let bytes = [vec![0xFF; shift * data_type.size()], bytes].concat();
        let base = device.memory().allocate(bytes.len()).unwrap();
        let buffer = Buffer { device: device.clone(), base, bytes, data_type, shift };
        buffer.fill(stream);
        buffer
    }

    fn fill(&self, stream: &Stream) {
        // SAFETY: the memory has as many bytes.
        unsafe { self.device.memory().copy_in(self.base, &self.bytes, stream) }.unwrap();
    }

    /// The first element.
    fn at<T>(&self) -> *mut T {
        self.base.wrapping_byte_add(self.shift * self.data_type.size()).cast()
    }

    fn read(&self, stream: &Stream) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes.len()];
        // SAFETY: the memory was filled when it was made.
        unsafe { self.device.memory().copy_out(&mut bytes, self.base, stream) }.unwrap();
        bytes.split_off(self.shift * self.data_type.size())
    }

    /// What it holds, as numbers: a zero is a zero, whatever its sign.
    fn numbers(&self, stream: &Stream) -> Vec<f32> {
        let bytes = self.read(stream);
        match self.data_type {
            DataType::Float => {
                bytes.chunks_exact(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect()
            }
            DataType::Half => {
                bytes.chunks_exact(2).map(|b| f16::from_ne_bytes([b[0], b[1]]).to_f32()).collect()
            }
            DataType::BFloat16 => {
                bytes.chunks_exact(2).map(|b| bf16::from_ne_bytes([b[0], b[1]]).to_f32()).collect()
            }
            other @ (DataType::Double | DataType::Int8) => {
                panic!("no {other} in these tests")
            }
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this size, given back once; reads have waited for the stream.
        unsafe { self.device.memory().free(self.base, self.bytes.len()) }
    }
}

/// Bytes of numbers in f32, f16 or bf16.
fn encode(data_type: DataType, values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    match data_type {
        DataType::Float => values.into_iter().flat_map(f32::to_ne_bytes).collect(),
        DataType::Half => values.into_iter().flat_map(|value| f16::from_f32(value).to_ne_bytes()).collect(),
        DataType::BFloat16 => {
            values.into_iter().flat_map(|value| bf16::from_f32(value).to_ne_bytes()).collect()
        }
        other @ (DataType::Double | DataType::Int8) => {
            panic!("no {other} in these tests")
        }
    }
}

/// Small whole numbers, so that sums are exact whatever their order.
fn whole(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 24) % 5) as f32 - 2.0
    };
    (0..count).map(|_| next()).collect()
}

/// Numbers between -1 and 1 with bits enough that sums depend on their order.
fn noise(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// What tensors are filled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Results are exact.
    Whole,
    /// Results depend on the order of sums.
    Noise,
}

/// The mean of a channel in [`batch`].
fn mean(channel: usize) -> f32 {
    (channel % 5) as f32 - 2.0
}

/// A tensor whose elements are one above or one below their channel's mean, at each place as many above as below
/// over an even number of images: each mean is exact, and each variance 1.
fn batch(tensor: &TensorDescriptor) -> Vec<f32> {
    let (&[images, channels, height, width], &[sn, sc, sh, sw]) = (tensor.lens(), tensor.strides().unwrap())
    else {
        panic!("four dimensions")
    };
    let mut values = vec![0.0; tensor.span()];
    let places =
        (0..channels * height * width).map(|i| (i / (height * width), i / width % height, i % width));
    for ((c, h, w), side) in places.zip(whole(channels * height * width, 17)) {
        for n in 0..images {
            let above = (n % 2 == 0) == (side > 0.0);
            values[n * sn + c * sc + h * sh + w * sw] = mean(c) + if above { 1.0 } else { -1.0 };
        }
    }
    values
}

/// Whether a kernel's plans, of which `of` makes one with operands so many elements behind where an allocation starts, give the
/// expected results, and the same bits twice on numbers whose sums depend on their order; `anywhere`, also with operands an
/// element off, which is so where no other kernel computes those. The plan that was executed last, and what it wrote.
pub(crate) fn checked(
    of: impl Fn(usize, Content) -> Plan,
    stream: &Stream,
    is_right: impl Fn(&[f32]) -> bool,
    anywhere: bool,
) -> Result<(Plan, Vec<u8>), String> {
    for shift in [0, 1] {
        let plan = of(shift, Content::Whole);
        plan.launch(stream);
        if !is_right(&plan.results(stream)) {
            return Err(format!("is wrong with pointers {shift} elements off"));
        }
    }
    let plan = of(0, Content::Noise);
    let bytes = [0; 2].map(|_| {
        plan.reset(stream);
        plan.launch(stream);
        plan.bytes(stream)
    });
    if bytes[0] != bytes[1] {
        return Err("gave other bits".into());
    }
    if anywhere {
        let elsewhere = of(1, Content::Noise);
        elsewhere.launch(stream);
        if elsewhere.results(stream) != plan.results(stream) {
            return Err("gave other bits with pointers an element off".into());
        }
    }
    let [_, last] = bytes;
    Ok((plan, last))
}

/// What makes variances plus it powers of four, those of a batch that are 1 and those of inference.
const TRAINING_EPSILON: f64 = 3.0;
const EPSILON: f64 = 1.0 / 1024.0;

/// A plan with its executable and operands.
pub(crate) struct Plan {
    problem: Problem,
    executable: Arc<dyn Executable>,
    input: Buffer,
    /// What each operator reads.
    operands: Vec<Vec<Buffer>>,
    /// What is derived from them, where they never change.
    prepared: Vec<Option<Arc<Prepared>>>,
    /// The output, then what a training operator writes besides, its running statistics last.
    pub(crate) written: Vec<Buffer>,
}

impl Plan {
    /// The plan on a solver's device, its operands `shift` elements behind where an allocation starts.
    pub(crate) fn new(
        device: &Arc<dyn Device>,
        stream: &Stream,
        problem: &Problem,
        solver: &dyn Solver,
        shift: usize,
        content: Content,
    ) -> Self {
        solver.applies(problem, device.info()).unwrap();
        let binary = solver.compile_preferred(problem, device.info()).unwrap();
        Self::of(device, stream, problem, solver, &binary, shift, content)
    }

    /// The same of a binary of the solver's.
    pub(crate) fn of(
        device: &Arc<dyn Device>,
        stream: &Stream,
        problem: &Problem,
        solver: &dyn Solver,
        binary: &Binary,
        shift: usize,
        content: Content,
    ) -> Self {
        let executable = solver.load(problem, device, binary).unwrap();
        let data_type = problem.output.data_type();
        let of = |values: Vec<f32>| Buffer::of(device, stream, data_type, encode(data_type, values), shift);
        let list = |values: Vec<f32>| {
            Buffer::of(device, stream, DataType::Float, encode(DataType::Float, values), shift)
        };
        let tensor = |tensor: &TensorDescriptor, seed| {
            of(if content == Content::Whole { whole } else { noise }(tensor.span(), seed))
        };
        let groups = |mode: BatchNormMode| mode.derive(&problem.output).unwrap().element_count();
        let means = |mode| {
            let per_channel = groups(mode) / problem.output.lens()[1];
            (0..groups(mode)).map(|i| mean(i / per_channel)).collect()
        };
        let operands = problem.ops.iter().enumerate().map(|(i, op)| {
            let seed = 11 + i as u32;
            match op {
                Op::ConvForward { weights, .. } => vec![tensor(weights, 7)],
                Op::BiasForward { bias: own } | Op::PReluForward { slope: own } => vec![tensor(own, seed)],
                Op::BatchNormInference { mode, .. } => {
                    let count = groups(*mode);
                    let variance = |i| if i % 3 == 0 { 1.0 } else { 4.0 } - EPSILON as f32;
                    let variances = (0..count).map(variance).collect();
                    vec![
                        list(whole(count, seed)),
                        list(whole(count, 23)),
                        list(means(*mode)),
                        list(variances),
                    ]
                }
                Op::BatchNormForward { mode, .. } => {
                    vec![list(whole(groups(*mode), seed)), list(whole(groups(*mode), 23))]
                }
                Op::BatchNormBackward { mode } => {
                    let count = groups(*mode);
                    let params = [whole(count, seed), whole(count, 23), means(*mode), vec![0.5; count]];
                    [of(batch(&problem.input))].into_iter().chain(params.map(list)).collect()
                }
                Op::ActivationBackward { .. } => vec![tensor(&problem.output, 31)],
                Op::ActivationForward { .. } => Vec::new(),
            }
        });
        let operands: Vec<_> = operands.collect();
        let prepared = operands.iter().map(|_| Some(Arc::default())).collect();
        let poison = |data_type: DataType, count| {
            Buffer::of(device, stream, data_type, vec![0xFF; count * data_type.size()], shift)
        };
        let mut written = vec![poison(data_type, problem.output.span())];
        if let Op::BatchNormForward { mode, .. } | Op::BatchNormBackward { mode } = problem.ops[0] {
            written.extend((0..2).map(|_| poison(DataType::Float, groups(mode))));
        }
        if let Op::BatchNormForward { mode, running: true } = problem.ops[0] {
            written.extend([41, 43].map(|seed| list(whole(groups(mode), seed))));
        }
        let input = match problem.ops[0] {
            Op::BatchNormForward { .. } => of(batch(&problem.input)),
            _ => tensor(&problem.input, 3),
        };
        Plan { problem: problem.clone(), executable, input, operands, prepared, written }
    }

    /// The plan with operands that may change.
    pub(crate) fn changing(mut self) -> Self {
        self.prepared.fill(None);
        self
    }

    /// The plan with another solver's executable, and with nothing written.
    pub(crate) fn by(mut self, device: &Arc<dyn Device>, stream: &Stream, solver: &dyn Solver) -> Self {
        let binary = solver.compile_preferred(&self.problem, device.info()).unwrap();
        self.executable = solver.load(&self.problem, device, &binary).unwrap();
        self.prepared.iter_mut().for_each(|prepared| *prepared = Some(Arc::default()));
        self.reset(stream);
        self
    }

    /// What its executable says of itself.
    pub(crate) fn detail(&self) -> &str {
        &self.executable.info().detail
    }

    pub(crate) fn launch(&self, stream: &Stream) {
        let mut written = self.written[1..].iter();
        let mut args_of = |((op, read), prepared): ((&Op, &Vec<Buffer>), &Option<Arc<Prepared>>)| {
            let args = OpArgs { prepared: prepared.clone(), ..OpArgs::default() };
            let (kind, mut args, mut read) = (op.kind(), args, read.iter());
            for (spec, pointer) in kind.operands().iter().zip(&mut args.pointers) {
                let buffer = if spec.access.is_written() { written.next() } else { read.next() };
                *pointer = buffer.map_or(ptr::null_mut(), Buffer::at);
            }
            for (name, scalar) in kind.scalars().iter().zip(&mut args.scalars) {
                *scalar = match *name {
                    "epsilon" if kind == OpKind::BatchNormForward => TRAINING_EPSILON,
                    "epsilon" => EPSILON,
                    "exp_avg_factor" => 0.25,
                    _ => 0.0,
                };
            }
            args
        };
        let ops = self.problem.ops.iter().zip(&self.operands).zip(&self.prepared);
        let ops: Vec<_> = ops.map(&mut args_of).collect();
        let args = RunArgs {
            input: self.input.at(),
            output: self.written[0].at(),
            ops: &ops,
            workspace: ptr::null_mut(),
        };
        // SAFETY: buffers of the problem's descriptors on the executable's device, which live until a read
        // has waited for the stream.
        unsafe { self.executable.run(stream.raw(), &args) }.unwrap();
    }

    /// Undoes what launches have written.
    pub(crate) fn reset(&self, stream: &Stream) {
        self.written.iter().for_each(|buffer| buffer.fill(stream));
    }

    /// The bytes of all that a launch writes.
    pub(crate) fn bytes(&self, stream: &Stream) -> Vec<u8> {
        self.written.iter().flat_map(|buffer| buffer.read(stream)).collect()
    }

    /// The numbers of all that a launch writes.
    pub(crate) fn results(&self, stream: &Stream) -> Vec<f32> {
        self.written.iter().flat_map(|buffer| buffer.numbers(stream)).collect()
    }
}
