//! Call sequences against a model: bytes become calls of C functions on a few handles, in any order, and a
//! model says which must succeed and which must fail. Both the test and the fuzz target run this.

use std::ffi::{c_int, c_void};
use std::ptr::null;

use MIOpen::abi::{In, Out};
use MIOpen::*;
use fuseplan::{
    ActivationForward, ActivationMode, BatchNormInference, BatchNormMode, BiasForward, ConvForward,
    ConvolutionDescriptor, DataType, FusionPlan, TensorDescriptor, problem::OpKind,
};

const SLOTS: usize = 3;

/// Lengths that descriptors are given; small, so that every tensor fits the memory below. With a 0 among them they
/// describe nothing that could be used.
const LENS: [[c_int; 4]; 8] = [
    [1, 2, 4, 4],
    [2, 2, 3, 3],
    [1, 3, 4, 4],
    [3, 2, 1, 1],
    [3, 2, 3, 3],
    [1, 3, 1, 1],
    [1, 2, 1, 1],
    [1, 0, 2, 2],
];

/// Elements of each operand's memory; the largest output has fewer.
const MEMORY: usize = 4096;

/// A handle of the library, dead or alive, and what the model knows of its object.
struct Slot<H, M> {
    handle: H,
    model: Option<M>,
}

struct PlanModel {
    plan: FusionPlan,
    ops: Vec<miopenFusionOpDescriptor_t>,
    compiled: bool,
    /// An operator was refused.
    refused: bool,
}

/// The objects of a sequence.
struct World {
    handles: Vec<Slot<miopenHandle_t, ()>>,
    tensors: Vec<Slot<miopenTensorDescriptor_t, Option<TensorDescriptor>>>,
    convs: Vec<Slot<miopenConvolutionDescriptor_t, ConvolutionDescriptor>>,
    plans: Vec<Slot<miopenFusionPlanDescriptor_t, PlanModel>>,
    args: Vec<Slot<miopenOperatorArgs_t, Vec<Option<OpKind>>>>,
    memory: Vec<f32>,
    /// Executions that succeeded.
    executed: usize,
}

/// Bytes that are used up; zeros behind their end.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn next(&mut self, below: usize) -> usize {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(first) % below
    }
}

fn dead<T, M>() -> Vec<Slot<Ref<T>, M>> {
    (0..SLOTS).map(|_| Slot { handle: Ref::NULL, model: None }).collect()
}

/// Whether parameters of a spatial batch-norm are what callers derive from a plan's input, or by the other mode.
fn has_certain_meaning(plan: &FusionPlan, params: &TensorDescriptor) -> bool {
    use BatchNormMode::{PerActivation, Spatial};
    let is = |mode: BatchNormMode, from: &TensorDescriptor| {
        let derived = mode.derive(from).and_then(|derived| derived.with_data_type(params.data_type()));
        derived.is_ok_and(|derived| derived == *params)
    };
    let same_channels = plan.input().lens()[1] == plan.output().lens()[1];
    is(Spatial, plan.input())
        || is(PerActivation, plan.output())
        || same_channels && is(PerActivation, plan.input())
}

/// The call's status is success exactly where the model says so.
#[track_caller]
fn expect(status: u32, success: bool, call: &str) {
    assert_eq!(status == 0, success, "{call} gave status {status}");
}

/// Where a call writes the handle it makes. The place outlives the call.
fn out<T>(place: &mut Ref<T>) -> Out<Ref<T>> {
    // SAFETY: a live place of this type.
    unsafe { Out::new(place) }
}

/// Runs the calls that the bytes mean, and tells how many executions succeeded. A call that does not answer
/// as the model says is a panic.
pub(crate) fn run(bytes: &[u8]) -> usize {
    let mut choices = Choices(bytes);
    let mut world = World {
        handles: dead(),
        tensors: dead(),
        convs: dead(),
        plans: dead(),
        args: dead(),
        memory: vec![1.0; 3 * MEMORY],
        executed: 0,
    };
    while !choices.0.is_empty() {
        world.step(&mut choices);
    }
    let executed = world.executed;
    world.end();
    executed
}

impl World {
    fn step(&mut self, choices: &mut Choices<'_>) {
        let slot = choices.next(SLOTS);
        // Handles are any numbers, and pointers are to live places of their type, so every call is safe.
        match choices.next(13) {
            0 => self.handle(slot, choices),
            1 | 2 => self.tensor(slot, choices),
            3 => self.conv(slot, choices),
            4 => self.plan(slot, choices),
            5..=7 => self.append(slot, choices),
            8 => self.compile(slot, choices),
            9 => self.args(slot, choices),
            10 => self.set_args(slot, choices),
            11 => self.execute(slot, choices),
            _ => self.whole_plan(choices),
        }
    }

    /// The calls of a sound program, so that sequences get as far as executions; others come between them.
    fn whole_plan(&mut self, choices: &mut Choices<'_>) {
        /// In the bytes of `step`.
        const PROGRAM: [&[u8]; 13] = [
            &[0, 0, 1],          // the first handle is created, if there is none
            &[0, 1, 1],          // the first tensor descriptor likewise
            &[0, 1, 2, 0],       // and set
            &[0, 4, 0, 1, 0],    // the first plan is destroyed
            &[0, 4, 0, 1, 1],    // and created
            &[0, 5, 0, 0, 2, 3], // with RELU
            &[0, 5, 0, 0, 1],    // and a residual
            &[0, 8, 0],          // compiled
            &[0, 9, 1],          // the first argument object is created, if there is none
            &[0, 10, 0, 0, 2],   // arguments of both operators are set
            &[0, 10, 0, 1, 1],
            &[0, 11, 0, 0, 0, 0], // executed, twice
            &[0, 11, 0, 0, 0, 0],
        ];
        for call in PROGRAM {
            if !choices.0.is_empty() && choices.next(4) == 0 {
                self.step(choices);
            }
            self.step(&mut Choices(call));
        }
    }

    fn handle(&mut self, slot: usize, choices: &mut Choices<'_>) {
        let slot = &mut self.handles[slot];
        if choices.next(4) == 0 {
            let alive = slot.model.take().is_some() || slot.handle == Ref::NULL;
            // SAFETY: see `step`.
            expect(unsafe { miopenDestroy(slot.handle) }, alive, "miopenDestroy");
        } else if slot.model.is_none() {
            // SAFETY: see `step`.
            expect(unsafe { miopenCreate(out(&mut slot.handle)) }, true, "miopenCreate");
            slot.model = Some(());
        }
    }

    fn tensor(&mut self, slot: usize, choices: &mut Choices<'_>) {
        let slot = &mut self.tensors[slot];
        match choices.next(5) {
            0 => {
                let alive = slot.model.take().is_some() || slot.handle == Ref::NULL;
                // SAFETY: see `step`.
                expect(unsafe { miopenDestroyTensorDescriptor(slot.handle) }, alive, "destroy tensor");
            }
            1 if slot.model.is_none() => {
                // SAFETY: see `step`.
                let status = unsafe { miopenCreateTensorDescriptor(out(&mut slot.handle)) };
                expect(status, true, "create tensor");
                slot.model = Some(None);
            }
            _ => {
                let lens = LENS[choices.next(LENS.len())];
                let [n, c, h, w] = lens;
                // SAFETY: see `step`.
                let status = unsafe { miopenSet4dTensorDescriptor(slot.handle, 1, n, c, h, w) };
                let described = TensorDescriptor::nchw(DataType::Float, lens.map(|length| length as usize));
                expect(status, slot.model.is_some(), "set tensor");
                if let Some(model) = &mut slot.model {
                    *model = described.ok();
                }
            }
        }
    }

    fn conv(&mut self, slot: usize, choices: &mut Choices<'_>) {
        let slot = &mut self.convs[slot];
        match choices.next(3) {
            0 => {
                let alive = slot.model.take().is_some() || slot.handle == Ref::NULL;
                // SAFETY: see `step`.
                expect(unsafe { miopenDestroyConvolutionDescriptor(slot.handle) }, alive, "destroy conv");
            }
            1 if slot.model.is_none() => {
                // SAFETY: see `step`.
                let status = unsafe { miopenCreateConvolutionDescriptor(out(&mut slot.handle)) };
                expect(status, true, "create conv");
                slot.model = Some(ConvolutionDescriptor::d2());
            }
            _ => {
                let (pad, stride) = (choices.next(3), choices.next(3));
                let (p, s) = (pad as c_int, stride as c_int);
                // SAFETY: see `step`.
                let status = unsafe { miopenInitConvolutionDescriptor(slot.handle, 0, p, p, s, s, 1, 1) };
                let conv = ConvolutionDescriptor::d2()
                    .with_pads([pad; 2])
                    .and_then(|conv| conv.with_strides([stride; 2]));
                expect(status, slot.model.is_some() && conv.is_ok(), "init conv");
                if let (Some(model), Ok(conv)) = (&mut slot.model, conv) {
                    *model = conv;
                }
            }
        }
    }

    fn described(&self, slot: usize) -> Option<TensorDescriptor> {
        self.tensors[slot].model.flatten()
    }

    fn plan(&mut self, slot: usize, choices: &mut Choices<'_>) {
        let (input, direction) = (choices.next(SLOTS), u32::from(choices.next(8) == 0));
        let described = self.described(input);
        let input = self.tensors[input].handle;
        let slot = &mut self.plans[slot];
        let destroys = choices.next(4) == 0;
        if !destroys && slot.model.is_some() {
            return;
        }
        if destroys {
            let alive = slot.model.take().is_some() || slot.handle == Ref::NULL;
            // SAFETY: see `step`.
            expect(unsafe { miopenDestroyFusionPlan(slot.handle) }, alive, "destroy plan");
            return;
        }
        let plan = described.filter(|_| direction == 0);
        let plan = plan.and_then(|input| FusionPlan::new(input).ok());
        // SAFETY: see `step`.
        let status = unsafe { miopenCreateFusionPlan(out(&mut slot.handle), direction, input) };
        expect(status, plan.is_some(), "create plan");
        slot.model = plan.map(|plan| PlanModel { plan, ops: Vec::new(), compiled: false, refused: false });
    }

    fn append(&mut self, slot: usize, choices: &mut Choices<'_>) {
        let (tensor, conv) = (choices.next(SLOTS), choices.next(SLOTS));
        let described = self.described(tensor);
        let (tensor, conv) = (self.tensors[tensor].handle, &self.convs[conv]);
        let slot = &mut self.plans[slot];
        let mut op = Ref::NULL;
        let mut plan = slot.model.as_ref().filter(|model| !model.refused).map(|model| model.plan.clone());
        // What the plan itself makes of the same operator, where everything it needs is there.
        let (status, success) = match choices.next(4) {
            0 => {
                let success = plan
                    .as_mut()
                    .zip(described)
                    .zip(conv.model)
                    .is_some_and(|((plan, w), conv)| plan.append(ConvForward::new(conv, w)).is_ok());
                // SAFETY: see `step`.
                (
                    unsafe { miopenCreateOpConvForward(slot.handle, out(&mut op), conv.handle, tensor) },
                    success,
                )
            }
            1 => {
                let success = plan.as_mut().zip(described).is_some_and(|(plan, bias)| {
                    let channels = (bias.lens()[0], bias.spatial()) == (1, &[1, 1][..]);
                    let lens = match channels {
                        true => vec![1, plan.output().lens()[1], 1, 1],
                        false => bias.lens().to_vec(),
                    };
                    let strides = bias.strides().filter(|_| !channels);
                    let bias = match strides {
                        Some(strides) => TensorDescriptor::new(bias.data_type(), &lens, strides),
                        None => TensorDescriptor::packed(bias.data_type(), &lens),
                    };
                    plan.append(BiasForward::with_descriptor(bias.unwrap())).is_ok()
                });
                // SAFETY: see `step`.
                (unsafe { miopenCreateOpBiasForward(slot.handle, out(&mut op), tensor) }, success)
            }
            2 => {
                // MIOpen's, our own, and numbers beside both.
                let mode = choices.next(13) as u32 + choices.next(2) as u32 * 995;
                let known = ActivationMode::from_miopen_value(mode);
                let success = plan
                    .as_mut()
                    .zip(known)
                    .is_some_and(|(plan, mode)| plan.append(ActivationForward::new(mode)).is_ok());
                // SAFETY: see `step`.
                (unsafe { miopenCreateOpActivationForward(slot.handle, out(&mut op), mode) }, success)
            }
            _ => {
                let success = plan.as_mut().zip(described).is_some_and(|(plan, params)| {
                    let mode = BatchNormMode::Spatial;
                    let params = match has_certain_meaning(plan, &params) {
                        true => {
                            mode.derive(plan.output()).unwrap().with_data_type(params.data_type()).unwrap()
                        }
                        false => params,
                    };
                    plan.append(BatchNormInference::with_descriptor(mode, params)).is_ok()
                });
                // SAFETY: see `step`.
                (unsafe { miopenCreateOpBatchNormInference(slot.handle, out(&mut op), 1, tensor) }, success)
            }
        };
        expect(status, success, "create operator");
        assert_eq!(op != Ref::NULL, success, "an operator is written on success only");
        let Some(model) = &mut slot.model else { return };
        model.compiled = false;
        match plan.filter(|_| success) {
            Some(plan) => {
                model.plan = plan;
                model.ops.push(op);
            }
            None => model.refused = true,
        }
    }

    fn compile(&mut self, slot: usize, choices: &mut Choices<'_>) {
        let handle = &self.handles[choices.next(SLOTS)];
        let slot = &mut self.plans[slot];
        // SAFETY: see `step`.
        let status = unsafe { miopenCompileFusionPlan(handle.handle, slot.handle) };
        let is_whole = slot.model.as_ref().is_some_and(|model| !model.ops.is_empty() && !model.refused);
        expect(status, is_whole && handle.model.is_some(), "compile");
        if let Some(model) = &mut slot.model {
            model.compiled |= status == 0;
        }
    }

    fn args(&mut self, slot: usize, choices: &mut Choices<'_>) {
        let slot = &mut self.args[slot];
        if slot.model.is_none() && choices.next(4) != 0 {
            // SAFETY: see `step`.
            expect(unsafe { miopenCreateOperatorArgs(out(&mut slot.handle)) }, true, "create args");
            slot.model = Some(Vec::new());
        } else if choices.next(4) == 0 {
            let alive = slot.model.take().is_some() || slot.handle == Ref::NULL;
            // SAFETY: see `step`.
            expect(unsafe { miopenDestroyOperatorArgs(slot.handle) }, alive, "destroy args");
        }
    }

    fn set_args(&mut self, slot: usize, choices: &mut Choices<'_>) {
        let (plan, index, kind) = (choices.next(SLOTS), choices.next(6), choices.next(4));
        let model = self.plans[plan].model.as_ref();
        let op = model.and_then(|model| Some((model.plan.ops().get(index)?.kind(), model.ops[index])));
        let handle = op.map_or(Ref::NULL, |(_, handle)| handle);
        let args = &mut self.args[slot];
        let data: *const c_void = self.memory[2 * MEMORY..].as_ptr().cast();
        // SAFETY: NULL is allowed.
        let none = || unsafe { In::new(null()) };
        let args_handle = args.handle;
        let (status, set) = match kind {
            0 => {
                // SAFETY: see `step`; the filters' memory outlives every execution.
                let set = unsafe { miopenSetOpArgsConvForward(args_handle, handle, none(), none(), data) };
                (set, OpKind::ConvForward)
            }
            1 => {
                // SAFETY: see `step`; the bias's memory outlives every execution.
                let set = unsafe { miopenSetOpArgsBiasForward(args_handle, handle, none(), none(), data) };
                (set, OpKind::BiasForward)
            }
            2 => {
                let [alpha, beta, gamma] = [1.0; 3];
                // SAFETY: see `step`; there is no memory among the arguments.
                let set = unsafe {
                    miopenSetOpArgsActivForward(args_handle, handle, none(), none(), alpha, beta, gamma)
                };
                (set, OpKind::ActivationForward)
            }
            _ => {
                let (a, o, n) = (args_handle, handle, &none);
                // SAFETY: see `step`; the parameters' memory outlives every execution.
                let set = unsafe {
                    miopenSetOpArgsBatchNormInference(a, o, n(), n(), data, data, data, data, 1e-5)
                };
                (set, OpKind::BatchNormInference)
            }
        };
        let success = args.model.is_some() && op.is_some_and(|(kind, _)| kind == set);
        expect(status, success, "set arguments");
        if let (true, Some(model)) = (success, &mut args.model) {
            model.resize(model.len().max(index + 1), None);
            model[index] = Some(set);
        }
    }

    fn execute(&mut self, slot: usize, choices: &mut Choices<'_>) {
        let [handle, input, output, args] = [(); 4].map(|()| choices.next(SLOTS));
        let (x, y) = (self.described(input), self.described(output));
        let (plan, args) = (&self.plans[slot], &self.args[args]);
        let ready = |model: &PlanModel| {
            let ops = model.plan.ops().iter().enumerate();
            let set = |index| args.model.as_ref().and_then(|set| set.get(index).copied().flatten());
            model.compiled
                && y == Some(*model.plan.output())
                && x == Some(*model.plan.input())
                && ops.into_iter().all(|(index, op)| set(index) == Some(op.kind()))
        };
        let alive = self.handles[handle].model.is_some() && args.model.is_some();
        let success = alive && plan.model.as_ref().is_some_and(ready);
        let (from, to) = self.memory.split_at_mut(MEMORY);
        // SAFETY: see `step`; every tensor of the model fits its part of the memory.
        let status = unsafe {
            miopenExecuteFusionPlan(
                self.handles[handle].handle,
                plan.handle,
                self.tensors[input].handle,
                from.as_ptr().cast(),
                self.tensors[output].handle,
                to.as_mut_ptr().cast(),
                args.handle,
            )
        };
        expect(status, success, "execute");
        self.executed += usize::from(success);
    }

    /// Everything that is still alive ends once.
    fn end(self) {
        // SAFETY: see `step`.
        unsafe {
            self.plans.iter().for_each(|s| expect(miopenDestroyFusionPlan(s.handle), s.ends(), "plan"));
            self.args.iter().for_each(|s| expect(miopenDestroyOperatorArgs(s.handle), s.ends(), "args"));
            self.convs
                .iter()
                .for_each(|s| expect(miopenDestroyConvolutionDescriptor(s.handle), s.ends(), "conv"));
            self.tensors
                .iter()
                .for_each(|s| expect(miopenDestroyTensorDescriptor(s.handle), s.ends(), "tensor"));
            self.handles.iter().for_each(|s| expect(miopenDestroy(s.handle), s.ends(), "handle"));
        }
    }
}

impl<T, M> Slot<Ref<T>, M> {
    /// Whether destroying succeeds: the object lives, or there never was one.
    fn ends(&self) -> bool {
        self.model.is_some() || self.handle == Ref::NULL
    }
}
