//! Programs that use CUDA themselves: cudarc's streams and memory, graphs, contexts. On a device with NVRTC; with
//! `REQUIRE_BACKEND=cuda` a missing one is a failure, else cases are ignored with the reason.

use std::error::Error;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, sys};
use fuseplan::cuda::CudarcHandle;
use fuseplan::device::discover;
use fuseplan::error::ExecuteError;
use fuseplan::memory::Operand;
use fuseplan::*;
use libtest_mimic::{Arguments, Failed, Trial};

/// An addition of 1 and a ReLU over three channels of four elements.
struct Layer {
    x: TensorDescriptor,
    compiled: CompiledPlan,
    bias: OpId<BiasForward>,
    relu: OpId<ActivationForward>,
}

const ONES: [f32; 3] = [1.0; 3];

impl Layer {
    fn new(handle: &Handle) -> Result<Self, fuseplan::Error> {
        let x = TensorDescriptor::nchw(DataType::Float, [1, 3, 2, 2])?;
        let mut plan = FusionPlan::for_device(handle, x)?;
        let bias = plan.append(BiasForward::new())?;
        let relu = plan.append(ActivationForward::new(ActivationMode::Relu))?;
        Ok(Layer { x, compiled: plan.compile(handle)?, bias, relu })
    }

    fn args<'a>(&self, bias: impl Into<Operand<'a>>) -> OperatorArgs<'a> {
        let mut args = OperatorArgs::new();
        args.set(self.bias, BiasForwardArgs::new(bias));
        args.set(self.relu, Activation::Relu);
        args
    }
}

fn numbers(start: f32) -> Vec<f32> {
    (0..12).map(|i| i as f32 - start).collect()
}

/// What the layer gives, applied `times` times.
fn expected(input: &[f32], times: usize) -> Vec<f32> {
    (0..times).fold(input.to_vec(), |x, _| x.iter().map(|x| (x + 1.0).max(0.0)).collect())
}

fn new_stream() -> Result<Arc<CudaStream>, Box<dyn Error>> {
    Ok(CudaContext::new(0)?.new_stream()?)
}

/// Slices and views that other streams write before and read behind a plan, again and again, also where what says
/// that a plan uses them is never dropped.
fn slices() -> Result<(), Box<dyn Error>> {
    let (stream, other) = (new_stream()?, new_stream()?);
    let handle = CudarcHandle::new(stream.clone())?;
    let layer = Layer::new(&handle)?;
    let ones = other.clone_htod(&ONES)?;
    for round in 0..50 {
        let start = numbers(round as f32);
        // Twelve elements behind eight others, filled on another stream.
        let mut whole = other.alloc_zeros::<f32>(20)?;
        other.memcpy_htod(&start, &mut whole.slice_mut(8..20))?;
        let part = whole.slice(8..20);
        let mut output = stream.alloc_zeros::<f32>(12)?;
        {
            let (bias, from, mut to) = (handle.read(&ones)?, handle.read(&part)?, handle.write(&mut output)?);
            let args = layer.args(&bias);
            layer.compiled.execute(
                &handle,
                Tensor::new(&layer.x, &from),
                TensorMut::new(&layer.x, &mut to),
                &args,
            )?;
            if round % 2 == 1 {
                std::mem::forget((bias, from, to));
            }
        }
        // Read on the stream that knows of the plan only by cudarc's events.
        assert_eq!(other.clone_dtoh(&output)?, expected(&start, 1), "round {round}");
    }
    Ok(())
}

/// Memory that is ready for one stream is refused on another, and so is what is too small or of another type.
fn refusals() -> Result<(), Box<dyn Error>> {
    let handle = CudarcHandle::new(new_stream()?)?;
    let other = CudarcHandle::new(new_stream()?)?;
    let layer = Layer::new(&handle)?;
    let stream = CudaContext::new(0)?.default_stream();
    let (ones, input) = (stream.clone_htod(&ONES)?, stream.clone_htod(&numbers(3.0))?);
    let mut output = stream.alloc_zeros::<f32>(12)?;
    let short = stream.clone_htod(&[0.0f32; 11])?;
    let wide = stream.clone_htod(&[0.0f64; 12])?;
    let (bias, mut to) = (handle.read(&ones)?, handle.write(&mut output)?);
    let args = layer.args(&bias);
    let mut run = |input: Operand<'_>, handle: &Handle| {
        let input = Tensor::new(&layer.x, input);
        layer.compiled.execute(handle, input, TensorMut::new(&layer.x, &mut to), &args)
    };
    let from = handle.read(&input)?;
    assert!(matches!(run((&from).into(), &other), Err(ExecuteError::OtherStream { .. })));
    assert!(matches!(run((&handle.read(&short)?).into(), &handle), Err(ExecuteError::TooSmall { .. })));
    assert!(matches!(run((&handle.read(&wide)?).into(), &handle), Err(ExecuteError::DataType { .. })));
    run((&from).into(), &handle)?;
    let per_thread = CudaContext::new(0)?.per_thread_stream();
    assert!(CudarcHandle::new(per_thread).is_err());
    Ok(())
}

/// The default stream, which is null.
fn default_stream() -> Result<(), Box<dyn Error>> {
    let stream = CudaContext::new(0)?.default_stream();
    let handle = CudarcHandle::new(stream.clone())?;
    let layer = Layer::new(&handle)?;
    let (ones, input) = (stream.clone_htod(&ONES)?, stream.clone_htod(&numbers(3.0))?);
    let mut output = stream.alloc_zeros::<f32>(12)?;
    {
        let (bias, from, mut to) = (handle.read(&ones)?, handle.read(&input)?, handle.write(&mut output)?);
        let args = layer.args(&bias);
        let (from, to) = (Tensor::new(&layer.x, &from), TensorMut::new(&layer.x, &mut to));
        layer.compiled.execute(&handle, from, to, &args)?;
    }
    assert_eq!(stream.clone_dtoh(&output)?, expected(&numbers(3.0), 1));
    Ok(())
}

/// Executions on device buffers as a graph, replayed with other contents of the input.
fn graph() -> Result<(), Box<dyn Error>> {
    let handle = Handle::open("cuda", 0)?;
    let layer = Layer::new(&handle)?;
    let bias = DeviceBuffer::from_slice(&handle, &ONES)?;
    let mut input = DeviceBuffer::from_slice(&handle, &numbers(3.0))?;
    let mut middle = DeviceBuffer::<f32>::zeroed(&handle, 12)?;
    let mut output = DeviceBuffer::<f32>::zeroed(&handle, 12)?;
    let args = layer.args(&bias);
    let graph = handle.capture_graph(|handle| {
        let x = &layer.x;
        layer.compiled.execute(handle, Tensor::new(x, &input), TensorMut::new(x, &mut middle), &args)?;
        layer.compiled.execute(handle, Tensor::new(x, &middle), TensorMut::new(x, &mut output), &args)
    })?;
    assert_eq!(output.to_vec()?, [0.0; 12], "something ran at the capture");
    let graph = graph.instantiate()?;
    for start in [3.0, 5.0] {
        input.copy_from(&numbers(start))?;
        // SAFETY: the buffers live, and the handle's stream orders their use.
        unsafe { graph.launch(handle.stream()) }?;
        handle.synchronize()?;
        assert_eq!(output.to_vec()?, expected(&numbers(start), 2));
    }
    Ok(())
}

/// A context of the caller's own.
fn context() -> Result<(), Box<dyn Error>> {
    let mut context = ptr::null_mut();
    // SAFETY: the driver is initialised by the handle; the context is current on this thread until it is
    // destroyed, which is when all that was made in it is gone.
    unsafe {
        Handle::open("cuda", 0)?;
        sys::cuDevicePrimaryCtxRetain(&mut context, 0).result()?;
        sys::cuCtxPushCurrent_v2(context).result()?;
        let handle = Handle::adopt_cuda_context(ptr::null_mut())?;
        let layer = Layer::new(&handle)?;
        let args = layer.args(&ONES);
        let (input, mut output) = (numbers(3.0), vec![0.0f32; 12]);
        let (from, to) = (Tensor::new(&layer.x, &input), TensorMut::new(&layer.x, &mut output));
        layer.compiled.execute(&handle, from, to, &args)?;
        assert_eq!(output, expected(&input, 1));
        let mut left = ptr::null_mut();
        sys::cuCtxPopCurrent_v2(&mut left).result()?;
        assert_eq!(left, context, "the thread's current context was changed");
        sys::cuDevicePrimaryCtxRelease_v2(0).result()?;
    }
    Ok(())
}

fn main() {
    let arguments = Arguments::from_args();
    let found = discover("cuda").unwrap();
    let usable = !found.devices.is_empty() && found.notes.is_empty();
    if !usable {
        println!("ignored: {}", found.notes.join("; "));
        if std::env::var("REQUIRE_BACKEND").is_ok_and(|names| names.split(',').any(|name| name == "cuda")) {
            std::process::exit(101);
        }
    }
    type Case = fn() -> Result<(), Box<dyn Error>>;
    let cases: [(&str, Case); 5] = [
        ("slices", slices),
        ("refusals", refusals),
        ("default_stream", default_stream),
        ("graph", graph),
        ("context", context),
    ];
    let trials = cases.into_iter().map(|(name, case)| {
        let run = move || case().map_err(|error| Failed::from(error.to_string()));
        Trial::test(name, run).with_ignored_flag(!usable)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
