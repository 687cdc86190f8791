//! Executing on a device with memory of its own: what is copied, allocated, waited for, and given back.

mod operands;

use std::ffi::c_void;

use crate::error::{BackendError, BufferError, ExecuteError};
use crate::memory::{Operand, OperandMut};
use crate::raw::OpArgs;
use crate::*;
use fuseplan_api::MemoryKind;
use fuseplan_fakes::FakeDevice;

/// A 1x1 convolution of two channels into one, bias, ReLU: `max(x0 + 2 x1 + 1, 0)`.
struct Fixture {
    fake: FakeDevice,
    handle: Handle,
    plan: FusionPlan,
    compiled: CompiledPlan,
    weights: [f32; 2],
    shift: [f32; 1],
}

const INPUT: [f32; 6] = [1.0, -5.0, 2.0, 1.0, 1.0, -3.0];
const RESULT: [f32; 3] = [4.0, 0.0, 0.0];

impl Fixture {
    fn new() -> Self {
        Self::with_workspace(0)
    }

    fn with_workspace(workspace: usize) -> Self {
        let (fake, handle) = fake_device();
        fake.set_workspace(workspace);
        let x = TensorDescriptor::nchw(DataType::Float, [1, 2, 1, 3]).unwrap();
        let w = TensorDescriptor::nchw(DataType::Float, [1, 2, 1, 1]).unwrap();
        let mut plan = FusionPlan::for_device(&handle, x).unwrap();
        plan.append(ConvForward::new(ConvolutionDescriptor::d2(), w)).unwrap();
        plan.append(BiasForward::new()).unwrap();
        plan.append(ActivationForward::new(ActivationMode::Relu)).unwrap();
        let compiled = plan.compile(&handle).unwrap();
        Fixture { fake, handle, plan, compiled, weights: [1.0, 2.0], shift: [1.0] }
    }

    fn args(&self) -> OperatorArgs<'_> {
        let mut args = OperatorArgs::new();
        args.set(self.plan.op_id::<ConvForward>(0).unwrap(), ConvForwardArgs::new(&self.weights))
            .set(self.plan.op_id::<BiasForward>(1).unwrap(), BiasForwardArgs::new(&self.shift))
            .set(self.plan.op_id::<ActivationForward>(2).unwrap(), Activation::Relu);
        args
    }

    fn run_slices(&self, args: &OperatorArgs<'_>, output: &mut [f32]) -> Result<(), ExecuteError> {
        let (x, y) = (Tensor::new(self.plan.input(), &INPUT), TensorMut::new(self.plan.output(), output));
        self.compiled.execute(&self.handle, x, y, args)
    }

    fn run_buffers(
        &self,
        handle: &Handle,
        args: &OperatorArgs<'_>,
        input: &DeviceBuffer<f32>,
        output: &mut DeviceBuffer<f32>,
    ) -> Result<(), ExecuteError> {
        let (x, y) = (Tensor::new(self.plan.input(), input), TensorMut::new(self.plan.output(), output));
        self.compiled.execute(handle, x, y, args)
    }
}

#[test]
fn slices_are_copied_and_nothing_stays_but_what_operators_read() {
    let fixture = Fixture::new();
    assert_eq!(fixture.handle.memory_kind(), MemoryKind::Device);
    let args = fixture.args();
    for _ in 0..3 {
        let mut output = [f32::NAN; 3];
        fixture.run_slices(&args, &mut output).unwrap();
        assert_eq!(output, RESULT);
        // Weights and bias.
        assert_eq!(fixture.fake.live(), 2);
    }
    // Weights and bias once, input and output each time.
    assert_eq!(fixture.fake.allocations(), 2 + 3 * 2);
    drop(args);
    assert_eq!(fixture.fake.live(), 0);
}

#[test]
fn buffers_are_used_where_they_lie_without_allocating_or_waiting() {
    let fixture = Fixture::new();
    let args = fixture.args();
    let input = DeviceBuffer::from_slice(&fixture.handle, &INPUT).unwrap();
    let mut output = DeviceBuffer::zeroed(&fixture.handle, 3).unwrap();
    assert_eq!(output.to_vec().unwrap(), [0.0; 3]);
    fixture.run_buffers(&fixture.handle, &args, &input, &mut output).unwrap();
    let (allocations, waits) = (fixture.fake.allocations(), fixture.fake.waits());
    for _ in 0..5 {
        fixture.run_buffers(&fixture.handle, &args, &input, &mut output).unwrap();
    }
    assert_eq!((fixture.fake.allocations(), fixture.fake.waits()), (allocations, waits));
    assert_eq!(output.to_vec().unwrap(), RESULT);
    // A buffer as weights needs no copy.
    let weights = DeviceBuffer::from_slice(&fixture.handle, &[0.0f32, 1.0]).unwrap();
    let mut own = fixture.args();
    own.set(fixture.plan.op_id::<ConvForward>(0).unwrap(), ConvForwardArgs::new(&weights));
    fixture.run_buffers(&fixture.handle, &own, &input, &mut output).unwrap();
    assert_eq!(output.to_vec().unwrap(), [2.0, 2.0, 0.0]);
    drop((own, args, input, output));
    drop(weights);
    assert_eq!(fixture.fake.live(), 0);
}

#[test]
fn without_checks_the_same_is_computed_and_allocated() {
    for workspace in [0, 100] {
        let fixture = Fixture::with_workspace(workspace);
        let handle = &fixture.handle;
        let buffer = |of: &[f32]| DeviceBuffer::from_slice(handle, of).unwrap();
        let (input, weights, shift) = (buffer(&INPUT), buffer(&fixture.weights), buffer(&fixture.shift));
        let mut output = buffer(&[f32::NAN; 3]);
        let address = |of: &DeviceBuffer<f32>| Operand::from(of).memory.address.cast_mut();
        let of = |buffer: &DeviceBuffer<f32>| {
            let mut args = OpArgs::default();
            args.pointers[0] = address(buffer);
            args
        };
        let ops = [of(&weights), of(&shift), OpArgs::default()];
        let run = |output: *mut c_void| {
            // SAFETY: these are the operands of the fixture's plan, which live until the fake device has computed, as it has
            // when the call returns.
            unsafe { fixture.compiled.execute_unchecked(handle, address(&input), output, &ops) }
        };
        let y = OperandMut::from(&mut output).memory.address.cast_mut();
        run(y).unwrap();
        assert_eq!(output.to_vec().unwrap(), RESULT);
        let (allocations, live) = (fixture.fake.allocations(), fixture.fake.live());
        run(y).unwrap();
        assert_eq!(fixture.fake.allocations() - allocations, usize::from(workspace > 0));
        assert_eq!(fixture.fake.live(), live);
    }
}

#[test]
fn what_is_set_again_is_copied_again_and_the_rest_is_not() {
    let fixture = Fixture::new();
    let (mut args, mut output) = (fixture.args(), [f32::NAN; 3]);
    fixture.run_slices(&args, &mut output).unwrap();
    let before = fixture.fake.allocations();
    args.set(fixture.plan.op_id::<BiasForward>(1).unwrap(), BiasForwardArgs::new(&[7.0f32]));
    fixture.run_slices(&args, &mut output).unwrap();
    assert_eq!(output, [10.0, 4.0, 3.0]);
    // The bias, input and output.
    assert_eq!(fixture.fake.allocations(), before + 3);
    assert_eq!(fixture.fake.live(), 2);
}

#[test]
fn another_stream_waits_once_for_what_it_must_not_overtake() {
    let fixture = Fixture::new();
    let args = fixture.args();
    // SAFETY: the fake looks at no stream.
    let other = unsafe { fixture.handle.with_stream(std::ptr::without_provenance_mut(77)) };
    let input = DeviceBuffer::from_slice(&fixture.handle, &INPUT).unwrap();
    let mut output = DeviceBuffer::zeroed(&fixture.handle, 3).unwrap();
    fixture.run_buffers(&fixture.handle, &args, &input, &mut output).unwrap();
    let waits = fixture.fake.waits();
    fixture.run_buffers(&other, &args, &input, &mut output).unwrap();
    // For the input, weights and bias, which the first stream copied; the output, which it wrote.
    assert_eq!(fixture.fake.waits(), waits + 4);
    fixture.run_buffers(&other, &args, &input, &mut output).unwrap();
    assert_eq!(fixture.fake.waits(), waits + 4);
    // Both streams have read the input.
    drop(input);
    assert_eq!(fixture.fake.waits(), waits + 6);
}

/// Weights that requests read on a stream each, for as long as a server runs.
#[test]
fn what_is_only_read_does_not_keep_every_stream() {
    let fixture = Fixture::new();
    let args = fixture.args();
    let input = DeviceBuffer::from_slice(&fixture.handle, &INPUT).unwrap();
    let device = fixture.handle.context().device();
    for _ in 0..100 {
        let handle = fixture.handle.on_stream(device.create_stream().unwrap());
        let mut output = DeviceBuffer::zeroed(&handle, 3).unwrap();
        fixture.run_buffers(&handle, &args, &input, &mut output).unwrap();
        assert_eq!(output.to_vec().unwrap(), RESULT);
    }
    assert_eq!(fixture.fake.live_streams(), 2, "the fixture's and the last");
    let kept = fixture.handle.on_stream(device.create_stream().unwrap());
    let mut output = DeviceBuffer::zeroed(&kept, 3).unwrap();
    for _ in 0..3 {
        fixture.run_buffers(&kept, &args, &input, &mut output).unwrap();
        fixture.run_buffers(&kept.clone(), &args, &input, &mut output).unwrap();
    }
    assert_eq!(fixture.fake.live_streams(), 2);
    let waits = fixture.fake.waits();
    drop(input);
    assert_eq!(fixture.fake.waits(), waits + 1, "only the stream that is left reads it");
}

#[test]
fn running_out_of_memory_is_an_error_that_leaks_and_writes_nothing() {
    let fixture = Fixture::new();
    for allocation in 0..4 {
        let args = fixture.args();
        let mut output = [f32::NAN; 3];
        fixture.fake.fail_allocation(allocation);
        let error = fixture.run_slices(&args, &mut output).unwrap_err();
        assert!(error.to_string().contains("out of memory allocating"), "{error}");
        assert!(output.iter().all(|value| value.is_nan()));
        // The same arguments are as good as before.
        fixture.run_slices(&args, &mut output).unwrap();
        assert_eq!(output, RESULT);
        drop(args);
        assert_eq!(fixture.fake.live(), 0, "allocation {allocation}");
    }
    fixture.fake.fail_allocation(0);
    assert!(matches!(
        DeviceBuffer::<f32>::zeroed(&fixture.handle, 3).unwrap_err(),
        BackendError::OutOfMemory { bytes: 12, .. }
    ));
}

#[test]
fn a_workspace_is_there_for_the_execution() {
    let fixture = Fixture::with_workspace(100);
    let (args, mut output) = (fixture.args(), [f32::NAN; 3]);
    fixture.run_slices(&args, &mut output).unwrap();
    assert_eq!(output, RESULT);
    assert_eq!(fixture.fake.live(), 2);
    let input = DeviceBuffer::from_slice(&fixture.handle, &INPUT).unwrap();
    let mut output = DeviceBuffer::zeroed(&fixture.handle, 3).unwrap();
    fixture.run_buffers(&fixture.handle, &args, &input, &mut output).unwrap();
    assert_eq!(output.to_vec().unwrap(), RESULT);
    assert_eq!(fixture.fake.live(), 4);
}

#[test]
fn a_workspace_of_the_callers_is_used_and_none_is_allocated() {
    let fixture = Fixture::with_workspace(100);
    let (handle, args) = (&fixture.handle, fixture.args());
    let input = DeviceBuffer::from_slice(handle, &INPUT).unwrap();
    let mut output = DeviceBuffer::<f32>::zeroed(handle, 3).unwrap();
    let mut scratch = DeviceBuffer::<f32>::zeroed(handle, 25).unwrap();
    let mut run = |workspace: OperandMut<'_>| {
        let (x, y) = (Tensor::new(fixture.plan.input(), &input), fixture.plan.output());
        let y = TensorMut::new(y, &mut output);
        fixture.compiled.execute_with_workspace(handle, x, y, &args, workspace)
    };
    run((&mut scratch).into()).unwrap();
    let allocations = fixture.fake.allocations();
    run((&mut scratch).into()).unwrap();
    assert_eq!(fixture.fake.allocations(), allocations);

    let mut small = DeviceBuffer::<f32>::zeroed(handle, 24).unwrap();
    assert_eq!(run((&mut small).into()), Err(ExecuteError::Workspace { found: 96, needed: 100 }));
    assert_eq!(run(OperandMut::none()), Err(ExecuteError::Workspace { found: 0, needed: 100 }));
    let error = run((&mut [0.0f32; 100]).into()).unwrap_err();
    assert!(error.to_string().starts_with("the workspace is in the memory of the host"), "{error}");
    let (_, other) = fake_device();
    let mut foreign = DeviceBuffer::<f32>::zeroed(&other, 25).unwrap();
    let error = run((&mut foreign).into()).unwrap_err();
    assert!(
        matches!(&error, ExecuteError::OtherMemory { operand, .. } if operand == "the workspace"),
        "{error}"
    );
    let address = OperandMut::from(&mut scratch).memory.address.cast_mut();
    // SAFETY: the memory is that of `scratch`, or refused before it is looked at.
    let raw = |by: usize| unsafe { OperandMut::from_raw(address.wrapping_byte_add(by), None) };
    assert_eq!(run(raw(4)), Err(ExecuteError::MisalignedWorkspace { alignment: 256 }));
    run(raw(0)).unwrap();
    assert_eq!(output.to_vec().unwrap(), RESULT);

    // The kernel would read its input behind having written there, or worse.
    let address = OperandMut::from(&mut output).memory.address.cast_mut();
    let (x, y) = (Tensor::new(fixture.plan.input(), &input), fixture.plan.output());
    // SAFETY: the overlap is refused before the memory is looked at.
    let (y, workspace) = unsafe {
        (TensorMut::new(y, OperandMut::from_raw(address, None)), OperandMut::from_raw(address, None))
    };
    let error = fixture.compiled.execute_with_workspace(handle, x, y, &args, workspace).unwrap_err();
    assert_eq!(error.to_string(), "the workspace overlaps the output");
}

#[test]
fn blends_gaps_and_in_place_keep_what_a_slice_holds() {
    let (_, handle) = fake_device();
    let relu = |plan: &FusionPlan, beta: f32| {
        let mut args = OperatorArgs::new();
        let op = plan.op_id::<ActivationForward>(0).unwrap();
        args.set(op, ActivationForwardArgs::new(Activation::Relu).beta(beta));
        args
    };
    let plan = |x| {
        let mut plan = FusionPlan::new(x).unwrap();
        plan.append(ActivationForward::new(ActivationMode::Relu)).unwrap();
        let compiled = plan.compile(&handle).unwrap();
        (plan, compiled)
    };
    // Two rows of two with a gap of one behind the first.
    let x = TensorDescriptor::new(DataType::Float, &[1, 1, 2, 2], &[6, 6, 3, 1]).unwrap();
    let (gaps, compiled) = plan(x);
    let mut output = [9.0f32; 5];
    let input = [-1.0f32, 2.0, 100.0, 3.0, -4.0];
    let args = relu(&gaps, 0.0);
    compiled.execute(&handle, Tensor::new(&x, &input), TensorMut::new(&x, &mut output), &args).unwrap();
    assert_eq!(output, [0.0, 2.0, 9.0, 3.0, 0.0]);
    let args = relu(&gaps, 2.0);
    compiled.execute(&handle, Tensor::new(&x, &input), TensorMut::new(&x, &mut output), &args).unwrap();
    assert_eq!(output, [0.0, 6.0, 9.0, 9.0, 0.0]);

    let x = TensorDescriptor::nchw(DataType::Float, [1, 1, 1, 2]).unwrap();
    let (packed, compiled) = plan(x);
    let mut both = [-3.0f32, 5.0];
    compiled.execute_in_place(&handle, TensorMut::new(&x, &mut both), &relu(&packed, 0.0)).unwrap();
    assert_eq!(both, [0.0, 5.0]);
    let mut both = DeviceBuffer::from_slice(&handle, &[-3.0f32, 6.0]).unwrap();
    compiled.execute_in_place(&handle, TensorMut::new(&x, &mut both), &relu(&packed, 0.0)).unwrap();
    assert_eq!(both.to_vec().unwrap(), [0.0, 6.0]);
}

#[test]
fn statistics_come_back_to_slices() {
    let (fake, handle) = fake_device();
    let x = TensorDescriptor::nchw(DataType::Float, [2, 1, 1, 2]).unwrap();
    let mut plan = FusionPlan::new(x).unwrap();
    let norm = plan.append(BatchNormForward::new(BatchNormMode::Spatial, true)).unwrap();
    let compiled = plan.compile(&handle).unwrap();
    let input = DeviceBuffer::from_slice(&handle, &[1.0f32, 3.0, 5.0, 7.0]).unwrap();
    let mut output = DeviceBuffer::<f32>::zeroed(&handle, 4).unwrap();
    let (mut mean, mut running, mut variance) = ([f32::NAN], [2.0f32], [1.0f32]);
    let mut args = OperatorArgs::new();
    let own = BatchNormForwardArgs::new()
        .scale(&[1.0f32])
        .bias(&[0.0f32])
        .saved_mean(&mut mean)
        .running_mean(&mut running)
        .running_variance(&mut variance)
        .exp_avg_factor(0.5)
        .epsilon(0.0);
    args.set(norm, own);
    compiled.execute(&handle, Tensor::new(&x, &input), TensorMut::new(&x, &mut output), &args).unwrap();
    drop(args);
    assert_eq!((mean, running), ([4.0], [3.0]));
    assert!((variance[0] - (0.5 + 0.5 * 20.0 / 3.0)).abs() < 1e-5, "{variance:?}");
    drop((input, output));
    assert_eq!(fake.live(), 0);
}

/// Threads that share arguments borrow what plans write among them together, so they must not write at once.
#[test]
fn executions_that_write_the_same_arguments_take_turns() {
    let (fake, handle) = fake_device();
    let x = TensorDescriptor::nchw(DataType::Float, [2, 1, 1, 2]).unwrap();
    let mut plan = FusionPlan::new(x).unwrap();
    let norm = plan.append(BatchNormForward::new(BatchNormMode::Spatial, false)).unwrap();
    let compiled = plan.compile(&handle).unwrap();
    fake.slow_down(compiled.info().solver);
    let execute = |args: &OperatorArgs<'_>| {
        // SAFETY: the fake looks at no stream.
        let other = unsafe { handle.with_stream(std::ptr::without_provenance_mut(77)) };
        std::thread::scope(|scope| {
            for handle in [&handle, &other] {
                let compiled = &compiled;
                scope.spawn(move || {
                    let input = DeviceBuffer::from_slice(handle, &[1.0f32, 3.0, 5.0, 7.0]).unwrap();
                    let mut output = DeviceBuffer::<f32>::zeroed(handle, 4).unwrap();
                    for _ in 0..20 {
                        let (x, y) = (Tensor::new(&x, &input), TensorMut::new(&x, &mut output));
                        compiled.execute(handle, x, y, args).unwrap();
                    }
                });
            }
        });
    };
    let arguments = |mean: OperandMut<'static>| {
        BatchNormForwardArgs::new()
            .scale(&[1.0f32])
            .bias(&[0.0f32])
            .saved_mean(mean)
            .exp_avg_factor(0.5)
            .epsilon(0.0)
    };
    let mean: &mut [f32] = Box::leak(Box::new([f32::NAN]));
    let buffer = Box::leak(Box::new(DeviceBuffer::<f32>::zeroed(&handle, 1).unwrap()));
    for mean in [OperandMut::from(mean), OperandMut::from(buffer)] {
        let mut args = OperatorArgs::new();
        args.set(norm, arguments(mean));
        execute(&args);
        assert_eq!(fake.most_at_once(), 1);
    }
    let mut args = OperatorArgs::new();
    args.set(norm, arguments(OperandMut::none()));
    execute(&args);
    assert_eq!(fake.most_at_once(), 2, "nothing is written among these arguments");
}

#[test]
fn memory_of_another_device_is_refused() {
    let fixture = Fixture::new();
    let (_, other) = fake_device();
    let args = fixture.args();
    let mut output = DeviceBuffer::zeroed(&fixture.handle, 3).unwrap();
    let input = DeviceBuffer::from_slice(&other, &INPUT).unwrap();
    let error = fixture.run_buffers(&fixture.handle, &args, &input, &mut output).unwrap_err();
    assert!(matches!(&error, ExecuteError::OtherMemory { operand, .. } if operand == "the input"), "{error}");
    assert!(error.to_string().contains("the handle is of another opening of fake 0"), "{error}");
    let halves = DeviceBuffer::<half::f16>::zeroed(&fixture.handle, 6).unwrap();
    let (x, y) = (Tensor::new(fixture.plan.input(), &halves), fixture.plan.output());
    let error =
        fixture.compiled.execute(&fixture.handle, x, TensorMut::new(y, &mut output), &args).unwrap_err();
    assert!(matches!(error, ExecuteError::DataType { found: DataType::Half, .. }), "{error}");
}

#[test]
fn copies_need_equal_lengths() {
    let (fake, handle) = fake_device();
    let mut buffer = DeviceBuffer::from_slice(&handle, &[1i8, 2, 3]).unwrap();
    assert_eq!(buffer.copy_from(&[1, 2]), Err(BufferError::Length { found: 2, expected: 3 }));
    assert_eq!(buffer.copy_to(&mut [0; 4]), Err(BufferError::Length { found: 4, expected: 3 }));
    buffer.copy_from(&[4, 5, 6]).unwrap();
    let mut slice = [0; 3];
    buffer.copy_to(&mut slice).unwrap();
    assert_eq!(slice, [4, 5, 6]);
    let copies = fake.copies();
    let large = DeviceBuffer::<f64>::zeroed(&handle, 100_000).unwrap();
    assert_eq!(fake.copies(), copies, "the device makes the zeros");
    assert!(large.to_vec().unwrap().iter().all(|&value| value == 0.0));
    let huge = DeviceBuffer::<f32>::zeroed(&Handle::cpu(), usize::MAX / 2);
    assert!(matches!(huge.unwrap_err(), BackendError::OutOfMemory { .. }));
    assert!(DeviceBuffer::<f32>::zeroed(&handle, 0).unwrap().to_vec().unwrap().is_empty());
}
