//! Calls in few words, and a layer to call them with.

use std::ffi::CStr;
use std::ptr::null_mut;

use fuseplan_c::abi::{In, Out};
use fuseplan_c::*;

/// `FUSEPLAN_F16` and the like of the header.
pub(crate) const F16: u32 = 0;
pub(crate) const F32: u32 = 1;
pub(crate) const RELU: u32 = 3;

/// The status of a call.
macro_rules! status {
    ($function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: handles are any numbers, and pointers are to live memory of their type.
        unsafe { fuseplan_c::$function($($argument),*) }
    };
}

/// A call that succeeds.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        let status = status!($function($($argument),*));
        assert_eq!(status, 0, "{}", $crate::common::last_error());
    }};
}

/// A call that creates something and succeeds.
macro_rules! create {
    ($function:ident($($before:expr),* ; $($argument:expr),* $(,)?)) => {{
        let mut handle = fuseplan_c::Ref::NULL;
        call!($function($($before,)* $crate::common::out(&mut handle) $(, $argument)*));
        handle
    }};
}

/// A place that a call writes to.
pub(crate) fn out<T: Copy>(place: &mut T) -> Out<T> {
    // SAFETY: the tests keep every place alive during the call that it is for.
    unsafe { Out::new(place) }
}

/// Places that a call writes to; as many as it writes.
#[allow(dead_code, reason = "not every test's program has such a call")]
pub(crate) fn out_all<T: Copy>(places: &mut [T]) -> Out<T> {
    // SAFETY: the tests keep every place alive during the call that it is for, which writes no more of them than there are.
    unsafe { Out::new(places.as_mut_ptr()) }
}

/// C's NULL where something could be written.
pub(crate) fn nowhere<T: Copy>() -> Out<T> {
    // SAFETY: NULL promises nothing.
    unsafe { Out::new(null_mut()) }
}

/// Values that a call reads; as many as the function reads.
pub(crate) fn from<T: Copy>(values: &[T]) -> In<T> {
    // SAFETY: the tests hand in as many values as the function reads, and keep them alive.
    unsafe { In::new(values.as_ptr()) }
}

/// C's NULL where something could be read.
pub(crate) fn none<T>() -> In<T> {
    // SAFETY: NULL promises nothing.
    unsafe { In::new(std::ptr::null()) }
}

/// A C string.
pub(crate) fn text(text: &'static CStr) -> In<std::ffi::c_char> {
    // SAFETY: it is static.
    unsafe { In::new(text.as_ptr()) }
}

/// What this thread was told last.
pub(crate) fn last_error() -> String {
    // SAFETY: a C string that lives until this thread's next failure, after the copy.
    unsafe { CStr::from_ptr(fuseplan_last_error()) }.to_string_lossy().into_owned()
}

pub(crate) fn cpu() -> fuseplan_handle_t {
    create!(fuseplan_handle_create(; text(c"cpu"), -1))
}

/// A packed tensor.
pub(crate) fn tensor(data_type: u32, lens: [usize; 4]) -> fuseplan_tensor_t {
    create!(fuseplan_tensor_create(; data_type, 0, 4, from(&lens)))
}

pub(crate) const CHANNELS: usize = 32;
pub(crate) const PIXELS: usize = 8 * 8;

/// Convolution by 1x1 filters, bias, ReLU.
pub(crate) struct Layer {
    pub(crate) handle: fuseplan_handle_t,
    pub(crate) plan: fuseplan_plan_t,
    pub(crate) compiled: fuseplan_compiled_t,
    pub(crate) args: fuseplan_args_t,
    pub(crate) weights: Vec<f32>,
    pub(crate) shift: Vec<f32>,
    input: Vec<f32>,
    output: Vec<f32>,
}

impl Layer {
    /// Weights of 1 and a bias of 0, for an input of ones; the bias is set, the weights are not.
    pub(crate) fn new(handle: fuseplan_handle_t) -> Self {
        let plan = create!(fuseplan_plan_create(; handle, tensor(F32, [1, CHANNELS, 8, 8])));
        let filters = tensor(F32, [CHANNELS, CHANNELS, 1, 1]);
        let mut ops = [9; 3];
        let [conv, bias, relu] = &mut ops;
        call!(fuseplan_plan_append_convolution(plan, filters, none(), none(), none(), none(), 1, out(conv)));
        call!(fuseplan_plan_append_bias(plan, F32, out(bias)));
        call!(fuseplan_plan_append_activation(plan, RELU, 0.0, 0.0, 0.0, out(relu)));
        assert_eq!(ops, [0, 1, 2]);
        let compiled = create!(fuseplan_plan_compile(plan, handle, 0;));
        let args = create!(fuseplan_args_create(; plan));
        let layer = Layer {
            handle,
            plan,
            compiled,
            args,
            weights: vec![1.0; CHANNELS * CHANNELS],
            shift: vec![0.0; CHANNELS],
            input: vec![1.0; CHANNELS * PIXELS],
            output: vec![f32::NAN; CHANNELS * PIXELS],
        };
        call!(fuseplan_args_set_operand(args, 1, text(c"bias"), layer.shift.as_ptr().cast()));
        layer
    }

    pub(crate) fn set_weights(&self) {
        call!(fuseplan_args_set_operand(self.args, 0, text(c"weights"), self.weights.as_ptr().cast()));
    }

    pub(crate) fn set_constant_weights(&self) {
        let weights = self.weights.as_ptr().cast();
        call!(fuseplan_args_set_constant_operand(self.args, 0, text(c"weights"), weights));
    }

    /// The status of an execution of `compiled`.
    pub(crate) fn execute(&mut self, compiled: fuseplan_compiled_t) -> u32 {
        let (input, output) = (self.input.as_ptr().cast(), self.output.as_mut_ptr().cast());
        status!(fuseplan_execute(self.handle, compiled, self.args, input, output, null_mut(), 0))
    }

    /// Every element of the output, which are all the same.
    pub(crate) fn output(&mut self) -> f32 {
        self.output.fill(f32::NAN);
        assert_eq!(self.execute(self.compiled), 0, "{}", last_error());
        assert!(self.output.iter().all(|element| *element == self.output[0]));
        self.output[0]
    }
}
