//! The library on a GPU with a fake in the place of the driver and of NVRTC: whatever call fails is an error, nothing
//! is leaked and nothing panics, for buffers, slices that are copied, workspaces and graphs. Executions on buffers
//! allocate nothing on the host either.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

#[path = "../../../backends/cuda/tests/fake/client.rs"]
mod client;
#[path = "../../common/counting.rs"]
mod counting;

use client::{FAKE, Fake, with_fake};
use counting::ALLOCATIONS;
use fuseplan::traits::Element;
use fuseplan::*;
use libtest_mimic::{Arguments, Failed, Trial};

/// The solver of a plan and what ten executions of it allocated, after the first.
fn allocations<T: Element + Default>(layout: TensorLayout) -> Result<(&'static str, usize), Error> {
    // SAFETY: as below.
    let handle = unsafe { Handle::adopt_cuda_context(std::ptr::null_mut()) }?;
    let x = TensorDescriptor::with_layout(T::DATA_TYPE, layout, &[2, 64, 8, 8])?;
    let w = TensorDescriptor::with_layout(T::DATA_TYPE, layout, &[64, 64, 3, 3])?;
    let mut plan = FusionPlan::for_device(&handle, x)?;
    let conv = plan.append(ConvForward::new(ConvolutionDescriptor::d2().with_pads([1, 1])?, w))?;
    let bias = plan.append(BiasForward::new())?;
    let relu = plan.append(ActivationForward::new(ActivationMode::Relu))?;
    // Strict plans of f32 have kernels without tensor maps.
    plan.set_math_mode(MathMode::Strict);
    let compiled = plan.compile(&handle)?;
    let y = *compiled.output();
    // Weights in the device's memory, the bias in the host's, which is copied once.
    let weights = DeviceBuffer::<T>::zeroed(&handle, w.span())?;
    let shift = vec![T::default(); 64];
    let mut args = OperatorArgs::new();
    args.set(conv, ConvForwardArgs::new(&weights))
        .set(bias, BiasForwardArgs::new(&shift))
        .set(relu, Activation::Relu);
    let from = DeviceBuffer::<T>::zeroed(&handle, x.span())?;
    let mut to = DeviceBuffer::<T>::zeroed(&handle, y.span())?;
    let mut run = || compiled.execute(&handle, Tensor::new(&x, &from), TensorMut::new(&y, &mut to), &args);
    run()?;
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    for _ in 0..10 {
        run()?;
    }
    Ok((compiled.info().solver, ALLOCATIONS.load(Ordering::SeqCst) - before))
}

fn executing_allocates_nothing(fake: &Fake) -> Result<(), Failed> {
    let context = fake.create_context(0);
    let result = executions_allocate_nothing();
    fake.destroy_context(context);
    result
}

fn executions_allocate_nothing() -> Result<(), Failed> {
    let mut solvers = Vec::new();
    for layout in [TensorLayout::Nhwc, TensorLayout::Nchw] {
        for run in [allocations::<f32>, allocations::<half::f16>] {
            let (solver, count) = run(layout)?;
            solvers.push(solver);
            if count != 0 {
                return Err(format!("{solver} on {layout}: {count} allocations").into());
            }
        }
    }
    // Kernels that load by TMA have the driver encode tensor maps at every execution.
    let hopper = solvers.iter().filter(|solver| solver.starts_with("cuda.conv_wgmma")).count();
    if hopper == 2 && solvers.len() == 4 { Ok(()) } else { Err(solvers.join(", ").into()) }
}

/// Everything that a program does in its current context; `channels` make the kernels' texts. How many launches prepare filters: one, since
/// they are constant. Where the first execution cannot, or does not know them to be ready, the captured one does as well, unless it leaves
/// filters that are not kept to another kernel, and so does the third.
fn scenario(fake: &Fake, channels: usize) -> Result<u64, Error> {
    // SAFETY: the context is the test's, which destroys it when all of this is gone.
    let handle = unsafe { Handle::adopt_cuda_context(std::ptr::null_mut()) }?;
    let launches = fake.launches(0);
    let x = TensorDescriptor::nchw(DataType::Float, [1, channels, 4, 4])?;
    let w = TensorDescriptor::nchw(DataType::Float, [8, channels, 1, 1])?;
    let mut plan = FusionPlan::for_device(&handle, x)?;
    let conv = plan.append(ConvForward::new(ConvolutionDescriptor::d2(), w))?;
    let bias = plan.append(BiasForward::new())?;
    let compiled = plan.compile(&handle)?;
    let y = *compiled.output();

    // Weights in the device's memory, the bias in the host's, which is copied once.
    let weights = DeviceBuffer::from_slice(&handle, &vec![0.5f32; 8 * channels])?;
    let shift = [1.0f32; 8];
    let mut args = OperatorArgs::new();
    args.set(conv, ConvForwardArgs::new(&weights)).set(bias, BiasForwardArgs::new(&shift));

    let from = DeviceBuffer::from_slice(&handle, &vec![1.0f32; 16 * channels])?;
    let mut to = DeviceBuffer::<f32>::zeroed(&handle, 16 * 8)?;
    compiled.execute(&handle, Tensor::new(&x, &from), TensorMut::new(&y, &mut to), &args)?;
    let (first, waited) = (fake.launches(0) - launches, fake.failed() != "cuStreamSynchronize");
    // On another stream, which waits for the first.
    let graph = handle.capture_graph(|handle| {
        compiled.execute(handle, Tensor::new(&x, &from), TensorMut::new(&y, &mut to), &args)
    })?;
    // SAFETY: the buffers live until the stream has been waited for.
    unsafe { graph.instantiate()?.launch(handle.stream()) }?;
    to.to_vec()?;

    // Slices in host memory, which are copied there and back.
    let (from, mut to) = (vec![1.0f32; 16 * channels], vec![0.0f32; 16 * 8]);
    compiled.execute(&handle, Tensor::new(&x, &from), TensorMut::new(&y, &mut to), &args)?;
    handle.synchronize()?;
    let detail = &compiled.info().detail;
    let each_time = !detail.contains("for filters that are not constant");
    Ok(match first {
        _ if !detail.contains("filters streamed") => 0,
        2 if waited => 1,
        _ => first + u64::from(each_time),
    })
}

fn every_call_fails(fake: &Fake, status: c_int) -> Result<(), Failed> {
    let context = fake.create_context(0);
    let mut failures = 0;
    for nth in 1.. {
        let launches = fake.launches(0);
        fake.fail(nth, status);
        let result = catch_unwind(AssertUnwindSafe(|| scenario(fake, nth as usize)));
        let failed = fake.failed();
        fake.fail(0, 0);
        let result = result.map_err(|_| format!("call {nth}, {failed}: a panic"))?;
        if fake.live() != "context depth=1" {
            return Err(format!("call {nth}, {failed}: live is {}", fake.live()).into());
        }
        match result {
            // Where nothing failed, filters are prepared once at most.
            Ok(preparing) if failed.is_empty() && preparing > 1 => {
                return Err(format!("{preparing} launches prepare filters").into());
            }
            Ok(preparing) => {
                let expected = 3 + preparing;
                let launched = fake.launches(0) - launches;
                if launched != expected {
                    return Err(format!("call {nth}, {failed}: {launched} launches of {expected}").into());
                }
            }
            Err(error) if failed.is_empty() => return Err(error.to_string().into()),
            Err(error) => {
                let text = error.to_string();
                if !text.contains(&failed) && !text.contains("out of memory") {
                    return Err(format!("call {nth}, {failed}: {text}").into());
                }
                failures += 1;
            }
        }
        if failed.is_empty() {
            break;
        }
    }
    fake.destroy_context(context);
    if failures > 40 { Ok(()) } else { Err(format!("only {failures} calls failed").into()) }
}

fn main() -> ExitCode {
    if !cfg!(target_os = "linux") {
        let trial = Trial::test("fake_for_linux", || Ok(())).with_ignored_flag(true);
        return libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code();
    }
    if std::env::var_os(FAKE).is_none() {
        return with_fake().unwrap();
    }
    // SAFETY: nothing else runs yet. The disk would spare the compiler its calls.
    unsafe { std::env::set_var("MIOPEN_DISABLE_CACHE", "1") };
    let mut arguments = Arguments::from_args();
    // The fake counts the calls of the whole process.
    arguments.test_threads = Some(1);
    let fake: &'static Fake = Box::leak(Box::new(Fake::load()));
    // No memory, and a status that nobody knows.
    let mut trials = vec![Trial::test("executing_allocates_nothing", || executing_allocates_nothing(fake))];
    trials.extend([2, 999_999].map(|status| {
        Trial::test(format!("every_call_fails.{status}"), move || every_call_fails(fake, status))
    }));
    libtest_mimic::run(&arguments, trials).exit_code()
}
