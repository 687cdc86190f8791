//! Cases through the functions of `libfuseplan.so.0`.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use fuseplan::{BatchNormMode, DataType, TensorDescriptor, TensorLayout};
use fuseplan_c::abi::{In, Out};
use fuseplan_c::*;
use fuseplan_suite::case::{self, Case, OpSpec, Stage};
use fuseplan_suite::layout::Layout;
use fuseplan_suite::oracle::EXP_AVG_FACTOR;

use crate::{Library, Refused, Result};

/// Calls a C function in a stage. Pointers that are made here are to live locals.
macro_rules! call {
    ($stage:ident, $function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: every pointer is NULL or to a local of the type and number that the header says.
        check(Stage::$stage, unsafe { $function($($argument),*) })
    };
}

/// Something that a call creates.
macro_rules! create {
    ($stage:ident, $function:ident($($before:expr,)* => $($argument:expr),* $(,)?)) => {{
        let mut handle = Ref::NULL;
        call!($stage, $function($($before,)* out(&mut handle) $(, $argument)*)).map(|()| handle)
    }};
}

fn check(stage: Stage, status: u32) -> std::result::Result<(), Refused> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: a C string of this thread's, read before its next call.
    let text = unsafe { CStr::from_ptr(fuseplan_last_error()) };
    Err(Refused { stage, status, text: text.to_string_lossy().into_owned() })
}

/// A place that a call writes to.
fn out<T: Copy>(place: &mut T) -> Out<T> {
    // SAFETY: every caller keeps the place over the call.
    unsafe { Out::new(place) }
}

/// C's NULL where something could be written.
fn nowhere<T: Copy>() -> Out<T> {
    // SAFETY: NULL promises nothing.
    unsafe { Out::new(null_mut()) }
}

/// Values that a call reads.
fn list<T: Copy>(values: &[T]) -> In<T> {
    // SAFETY: every caller holds the list over the call, and it is as long as the call is told.
    unsafe { In::new(values.as_ptr()) }
}

/// A name of an operand or scalar.
fn name(text: &'static CStr) -> In<std::ffi::c_char> {
    // SAFETY: it is static.
    unsafe { In::new(text.as_ptr()) }
}

/// The header's number of a data type, if it has one.
fn code(data_type: DataType) -> Option<u32> {
    match data_type {
        DataType::Half => Some(0),
        DataType::Float => Some(1),
        DataType::BFloat16 => Some(2),
        _ => None,
    }
}

/// The number of a type that `can_say` has let through.
fn known(data_type: DataType) -> Result<u32> {
    Ok(code(data_type).ok_or("a data type of the header")?)
}

/// The header's number of a layout.
fn layout_code(layout: TensorLayout) -> Result<u32> {
    let layouts = TensorLayout::all_of_rank(layout.rank());
    Ok(layouts.iter().position(|&named| named == layout).ok_or("a layout of the header")?.try_into()?)
}

fn tensor(data_type: DataType, lens: &[usize], layout: &Layout) -> Result<fuseplan_tensor_t> {
    let data_type_code = known(data_type)?;
    let described = layout.describe(data_type, lens);
    let strides = described.as_ref().ok().and_then(TensorDescriptor::strides);
    Ok(match (strides, layout.library()) {
        (Some(strides), _) => {
            let (lens, strides) = (list(lens), list(strides));
            create!(Descriptor, fuseplan_tensor_create_strided(=> data_type_code, described?.rank(), lens, strides))?
        }
        // Lengths that the layout cannot be made for are left to C to refuse.
        (None, named) => {
            let layout = layout_code(named.unwrap_or(TensorLayout::Nchw))?;
            create!(Descriptor, fuseplan_tensor_create(=> data_type_code, layout, lens.len(), list(lens)))?
        }
    })
}

/// A plan with everything that was made for it.
pub(crate) struct Built {
    handle: fuseplan_handle_t,
    plan: fuseplan_plan_t,
    compiled: fuseplan_compiled_t,
    args: fuseplan_args_t,
}

impl Drop for Built {
    fn drop(&mut self) {
        // SAFETY: handles are any numbers.
        unsafe {
            fuseplan_args_destroy(self.args);
            fuseplan_compiled_destroy(self.compiled);
            fuseplan_plan_destroy(self.plan);
            fuseplan_handle_destroy(self.handle);
        }
    }
}

fn append(case: &Case, plan: fuseplan_plan_t, op: &OpSpec) -> Result<()> {
    let own = |data_type: Option<DataType>| known(data_type.unwrap_or(case.data_type));
    let bn = |mode: BatchNormMode| mode as u32;
    match op {
        OpSpec::Conv(spec) => {
            let lens = spec.weight_lens(case.input[1]);
            let layout = spec.weights.clone().unwrap_or_else(|| case.layout.filters());
            let weights = tensor(spec.data_type.unwrap_or(case.data_type), &lens, &layout)?;
            let each = |of: &dyn Fn(usize) -> usize| (0..spec.filter.len()).map(of).collect::<Vec<_>>();
            let (strides, dilations) = (each(&|d| spec.stride(d)), each(&|d| spec.dilation(d)));
            let (before, after) = (each(&|d| spec.pad(d)), each(&|d| spec.pad_after(d)));
            let [strides, dilations, before, after] =
                [&strides, &dilations, &before, &after].map(|v| list(v));
            let groups = spec.groups;
            let appended = match spec.output.as_deref() {
                None => call!(
                    Append,
                    fuseplan_plan_append_convolution(
                        plan,
                        weights,
                        strides,
                        dilations,
                        before,
                        after,
                        groups,
                        nowhere()
                    )
                ),
                Some(output) => match output.library() {
                    Some(output) => {
                        let output = layout_code(output)?;
                        call!(
                            Append,
                            fuseplan_plan_append_convolution_to(
                                plan,
                                weights,
                                strides,
                                dilations,
                                before,
                                after,
                                groups,
                                output,
                                nowhere()
                            )
                        )
                    }
                    None => {
                        let output = output.describe(case.data_type, &case.output_lens())?;
                        let output = list(output.strides().unwrap_or_default());
                        call!(
                            Append,
                            fuseplan_plan_append_convolution_into(
                                plan,
                                weights,
                                strides,
                                dilations,
                                before,
                                after,
                                groups,
                                output,
                                nowhere()
                            )
                        )
                    }
                },
            };
            call!(Append, fuseplan_tensor_destroy(weights))?;
            appended?;
        }
        OpSpec::Bias(spec) => {
            call!(Append, fuseplan_plan_append_bias(plan, own(spec.data_type)?, nowhere()))?
        }
        OpSpec::PRelu(spec) => {
            let slopes = spec.lens.clone().unwrap_or_else(|| case.channel_lens()).iter().product();
            call!(Append, fuseplan_plan_append_prelu(plan, own(spec.data_type)?, slopes, nowhere()))?;
        }
        OpSpec::Residual(spec) => {
            let residual = match &spec.layout {
                Some(layout) => {
                    tensor(spec.data_type.unwrap_or(case.data_type), &case.output_lens(), layout)?
                }
                None => Ref::NULL,
            };
            let appended = call!(Append, fuseplan_plan_append_residual(plan, residual, nowhere()));
            call!(Append, fuseplan_tensor_destroy(residual))?;
            appended?;
        }
        OpSpec::BatchNorm(spec) => {
            let data_type = known(spec.data_type.unwrap_or(DataType::Float))?;
            call!(Append, fuseplan_plan_append_batch_norm(plan, bn(spec.mode), data_type, nowhere()))?;
        }
        OpSpec::Activation(spec) => {
            let ([a, b, c], mode) = (spec.params, spec.mode.miopen_value());
            call!(Append, fuseplan_plan_append_activation(plan, mode, a, b, c, nowhere()))?;
        }
        OpSpec::ActivationBackward(spec) => {
            let ([a, b, c], mode) = (spec.params, spec.mode.miopen_value());
            call!(Append, fuseplan_plan_append_activation_backward(plan, mode, a, b, c, nowhere()))?;
        }
        OpSpec::BatchNormForward(spec) => {
            let running = spec.running.into();
            call!(Append, fuseplan_plan_append_batch_norm_training(plan, bn(spec.mode), running, nowhere()))?;
        }
        OpSpec::BatchNormBackward(spec) => {
            call!(Append, fuseplan_plan_append_batch_norm_backward(plan, bn(spec.mode), nowhere()))?;
        }
    }
    Ok(())
}

impl Library for Built {
    const UNSUPPORTED: &[u32] = &[1, 2];

    /// The header has three data types, shapes of parameters that follow from the plan, and no transposed convolution.
    fn can_say(case: &Case) -> bool {
        let has = |data_type: Option<DataType>| data_type.is_none_or(|found| code(found).is_some());
        let ops = case.ops.iter().all(|op| match op {
            OpSpec::Conv(spec) => {
                has(spec.data_type) && !spec.transpose && spec.pad.len() <= spec.filter.len()
            }
            OpSpec::Bias(spec) => has(spec.data_type) && spec.lens.is_none(),
            OpSpec::PRelu(spec) => {
                let named = |lens: &Vec<usize>| *lens == case.channel_lens() || lens.iter().all(|&n| n == 1);
                has(spec.data_type) && spec.lens.as_ref().is_none_or(named)
            }
            OpSpec::Residual(spec) => {
                has(spec.data_type) && (spec.layout.is_some() || spec.data_type.is_none())
            }
            OpSpec::BatchNorm(spec) | OpSpec::BatchNormBackward(spec) => {
                has(spec.data_type) && spec.params.is_none()
            }
            OpSpec::Activation(_) | OpSpec::ActivationBackward(_) | OpSpec::BatchNormForward(_) => true,
        });
        ops && code(case.data_type).is_some()
    }

    fn may_take(_: &case::Refused) -> bool {
        false
    }

    fn refuses_at(_: &Case, refused: &case::Refused) -> Stage {
        let is_tensors = refused.reason == "Overflow"
            || refused
                .says
                .iter()
                .any(|words| words.starts_with("length") || words.contains("has blocks of"));
        match refused.stage {
            // What belongs to a convolution is told where it is appended.
            Stage::Descriptor if !is_tensors => Stage::Append,
            stage => stage,
        }
    }

    fn build(case: &Case) -> Result<Self> {
        let handle = create!(Plan, fuseplan_handle_create(=> name(c"cpu"), -1))?;
        let mut built = Built { handle, plan: Ref::NULL, compiled: Ref::NULL, args: Ref::NULL };
        let x = tensor(case.data_type, &case.input, &case.layout)?;
        let plan =
            create!(Plan, fuseplan_plan_create(=> if case.for_device { handle } else { Ref::NULL }, x));
        call!(Plan, fuseplan_tensor_destroy(x))?;
        built.plan = plan?;
        for op in &case.ops {
            append(case, built.plan, op)?;
        }
        Ok(built)
    }

    fn compile(&mut self) -> Result<()> {
        // FUSEPLAN_STRICT, as the oracle's bounds are those of sums.
        self.compiled = create!(Compile, fuseplan_plan_compile(self.plan, self.handle, 4, =>))?;
        self.args = create!(Compile, fuseplan_args_create(=> self.plan))?;
        Ok(())
    }

    fn output(&self) -> Result<TensorDescriptor> {
        let y = create!(Compile, fuseplan_plan_output(self.plan, =>))?;
        let (mut data_type, mut rank, mut lens, mut strides, mut layout) = (0, 0, [0; 5], [0; 5], 0);
        // SAFETY: live places, of as many elements as a tensor may have dimensions.
        let [lens_out, strides_out] =
            [&mut lens, &mut strides].map(|list| unsafe { Out::new(list.as_mut_ptr()) });
        call!(Compile, fuseplan_tensor_get(y, out(&mut data_type), out(&mut rank), lens_out, nowhere()))?;
        let (lens, named) = (&lens[..rank], |known: &DataType| code(*known) == Some(data_type));
        let data_type = DataType::ALL.into_iter().find(named).ok_or("a data type")?;
        let described =
            match call!(Compile, fuseplan_tensor_get(y, nowhere(), nowhere(), nowhere(), strides_out)) {
                Ok(()) => TensorDescriptor::new(data_type, lens, &strides[..rank])?,
                // Blocks have no strides.
                Err(_) => {
                    call!(Compile, fuseplan_tensor_layout(y, out(&mut layout)))?;
                    let layout = TensorLayout::all_of_rank(rank).get(layout as usize).ok_or("a layout")?;
                    TensorDescriptor::with_layout(data_type, *layout, lens)?
                }
            };
        call!(Compile, fuseplan_tensor_destroy(y))?;
        Ok(described)
    }

    fn set(&self, case: &Case, index: usize, read: &[*mut c_void], written: &[*mut c_void]) -> Result<()> {
        let beta = if index + 1 == case.ops.len() { case.beta } else { 0.0 };
        call!(Compile, fuseplan_args_set_scales(self.args, index, case.alpha[index], beta))?;
        let scalar =
            |text, value| call!(Compile, fuseplan_args_set_scalar(self.args, index, name(text), value));
        let reads: &[&CStr] = match &case.ops[index] {
            OpSpec::Conv(_) => &[c"weights"],
            OpSpec::Bias(_) | OpSpec::Residual(_) => &[c"bias"],
            OpSpec::PRelu(_) => &[c"slope"],
            OpSpec::Activation(_) => &[],
            OpSpec::ActivationBackward(_) => &[c"y"],
            OpSpec::BatchNorm(_) => &[c"scale", c"bias", c"mean", c"variance"],
            OpSpec::BatchNormForward(_) => &[c"scale", c"bias"],
            OpSpec::BatchNormBackward(_) => &[c"x", c"scale", c"bias", c"saved_mean", c"saved_inv_variance"],
        };
        for (text, pointer) in reads.iter().zip(read) {
            call!(Compile, fuseplan_args_set_operand(self.args, index, name(text), *pointer))?;
        }
        let writes: &[(&CStr, *mut c_void)] = match &case.ops[index] {
            OpSpec::BatchNormForward(spec) => {
                scalar(c"epsilon", case.epsilon)?;
                scalar(c"exp_avg_factor", EXP_AVG_FACTOR)?;
                let saved = [(c"saved_mean", written[0]), (c"saved_inv_variance", written[1])];
                let running = if spec.running { read } else { &[] };
                let running = running.iter().skip(2).zip([c"running_mean", c"running_variance"]);
                &saved.into_iter().chain(running.map(|(&pointer, text)| (text, pointer))).collect::<Vec<_>>()
            }
            OpSpec::BatchNormBackward(_) => &[(c"scale_diff", written[0]), (c"bias_diff", written[1])],
            OpSpec::BatchNorm(_) => {
                scalar(c"epsilon", case.epsilon)?;
                &[]
            }
            _ => &[],
        };
        for (text, pointer) in writes {
            call!(Compile, fuseplan_args_set_result(self.args, index, name(text), *pointer))?;
        }
        Ok(())
    }

    fn execute(&self, _: &Case, x: *mut c_void, y: *mut c_void) -> Result<()> {
        let workspace = null_mut();
        Ok(call!(Compile, fuseplan_execute(self.handle, self.compiled, self.args, x, y, workspace, 0))?)
    }
}
