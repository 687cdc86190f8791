//! The functions of `fuseplan.h` as callers call them.

#[macro_use]
mod common;

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use common::{
    CHANNELS, F16, F32, Layer, RELU, cpu, from, last_error, none, nowhere, out, out_all, tensor, text,
};
use fuseplan_c::abi::{In, Out};
use fuseplan_c::*;

const INVALID_ARGUMENT: u32 = 1;
const UNSUPPORTED: u32 = 2;
const UNAVAILABLE: u32 = 3;

/// The call fails with this status and a text that has these words.
macro_rules! refused {
    ($status:expr, $words:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let status = status!($function($($argument),*));
        let text = last_error();
        assert_eq!(status, $status, "{text}");
        let words: &str = $words;
        assert!(text.starts_with(concat!(stringify!($function), ": ")) && text.contains(words), "{text}");
    }};
}

/// A text by the two calls that it takes.
fn read(write: impl Fn(Out<std::ffi::c_char>, Out<usize>) -> u32) -> String {
    let mut size = 0;
    assert_eq!(write(nowhere(), out(&mut size)), 0, "{}", last_error());
    let mut buffer = vec![1; size];
    let mut too_small = size - 1;
    // SAFETY: the buffer is as large as the sizes say, or larger.
    let place = || unsafe { Out::new(buffer.as_ptr().cast_mut()) };
    assert_eq!(write(place(), out(&mut too_small)), INVALID_ARGUMENT);
    assert_eq!(too_small, size, "the size is written all the same");
    assert_eq!(write(place(), out(&mut size)), 0, "{}", last_error());
    // SAFETY: the call ended the text with a zero.
    let read = unsafe { CStr::from_ptr(buffer.as_mut_ptr()) }.to_str().unwrap().to_owned();
    assert_eq!(read.len() + 1, size);
    read
}

#[test]
fn operators_are_computed_in_their_order() {
    let mut layer = Layer::new(cpu());
    layer.set_weights();
    assert_eq!(layer.output(), 32.0);
    layer.shift.fill(-30.0);
    assert_eq!(layer.output(), 2.0);
    layer.shift.fill(-40.0);
    assert_eq!(layer.output(), 0.0);
    call!(fuseplan_args_set_scales(layer.args, 0, 2.0, 0.0));
    assert_eq!(layer.output(), 24.0);
}

#[test]
fn constant_weights_are_prepared_once_each_time_that_they_are_set() {
    let mut layer = Layer::new(cpu());
    layer.set_weights();
    assert_eq!(layer.output(), 32.0);
    layer.weights.fill(2.0);
    assert_eq!(layer.output(), 64.0, "nothing was promised");
    layer.set_constant_weights();
    assert_eq!(layer.output(), 64.0);
    layer.weights.fill(3.0);
    assert_eq!(layer.output(), 64.0, "what was prepared is kept");
    layer.set_constant_weights();
    assert_eq!(layer.output(), 96.0, "setting again prepares anew");
    layer.set_weights();
    layer.weights.fill(4.0);
    assert_eq!(layer.output(), 128.0, "setting without the promise takes it back");
}

/// A row of ones that is summed in threes, with a zero before it, behind it, on both sides, or with steps of two.
#[test]
fn padding_strides_and_dilations_are_those_of_each_side_and_dimension() {
    let handle = cpu();
    let (x, w) = (tensor(F32, [1, 1, 1, 4]), tensor(F32, [1, 1, 1, 3]));
    let (one, two, zero) = ([0, 1], [1, 2], [0, 0]);
    let ones = [1.0f32; 4];
    for (strides, dilations, before, after, expected) in [
        (none(), none(), from(&one), from(&zero), &[2.0f32, 3.0, 3.0][..]),
        (none(), none(), none(), from(&one), &[3.0, 3.0, 2.0]),
        (none(), none(), from(&one), none(), &[2.0, 3.0, 3.0, 2.0]),
        (from(&two), none(), none(), from(&one), &[3.0, 2.0]),
        (none(), from(&two), from(&one), none(), &[2.0, 2.0]),
    ] {
        let plan = create!(fuseplan_plan_create(; handle, x));
        call!(fuseplan_plan_append_convolution(plan, w, strides, dilations, before, after, 1, nowhere()));
        let compiled = create!(fuseplan_plan_compile(plan, handle, 0;));
        let args = create!(fuseplan_args_create(; plan));
        call!(fuseplan_args_set_operand(args, 0, text(c"weights"), ones.as_ptr().cast()));
        let mut y = [f32::NAN; 4];
        let (input, output) = (ones.as_ptr().cast(), y.as_mut_ptr().cast());
        call!(fuseplan_execute(handle, compiled, args, input, output, null_mut(), 0));
        assert_eq!(y[..expected.len()], *expected);
        let y = create!(fuseplan_plan_output(plan;));
        let mut bytes = 0;
        call!(fuseplan_tensor_bytes(y, out(&mut bytes)));
        assert_eq!(bytes, size_of_val(expected));
    }
}

/// Bits of f32 in the order of blocks of `block` channels, of a tensor in that of NCHW.
fn in_blocks(of: &[f32], channels: usize, block: usize) -> Vec<f32> {
    let pixels = of.len() / channels;
    let place = |at: usize| {
        let (outer, lane) = (at / (block * pixels), at % block);
        of[(outer * block + lane) * pixels + at / block % pixels]
    };
    (0..of.len()).map(place).collect()
}

/// Two layers: channels first, into blocks, a residual there, then back out to channels last.
#[test]
fn a_convolution_has_an_output_in_another_layout() {
    const FIRST: u32 = 0;
    const LAST: u32 = 1;
    const OF_4: u32 = 2;
    let handle = cpu();
    let lens = [1, 8, 2, 3];
    let x = tensor(F32, lens);
    // Output channel k is input channel k, plus 100.
    let filters: Vec<f32> = (0..64).map(|at| f32::from(at / 8 == at % 8)).collect();
    let (bias, values) = ([100.0f32; 8], (0..48u8).map(f32::from).collect::<Vec<_>>());
    let w = tensor(F32, [8, 8, 1, 1]);
    let layer = |input: fuseplan_tensor_t, layout: u32, is_sum: bool| {
        let plan = create!(fuseplan_plan_create(; handle, input));
        call!(fuseplan_plan_append_convolution_to(
            plan,
            w,
            none(),
            none(),
            none(),
            none(),
            1,
            layout,
            nowhere()
        ));
        call!(fuseplan_plan_append_bias(plan, F32, nowhere()));
        if is_sum {
            call!(fuseplan_plan_append_residual(plan, Ref::NULL, nowhere()));
        }
        let y = create!(fuseplan_plan_output(plan;));
        let mut found = 9;
        call!(fuseplan_tensor_layout(y, out(&mut found)));
        assert_eq!(found, layout);
        (plan, y)
    };
    let run = |plan: fuseplan_plan_t, x: &[f32], residual: Option<&[f32]>| {
        let compiled = create!(fuseplan_plan_compile(plan, handle, 0;));
        let args = create!(fuseplan_args_create(; plan));
        call!(fuseplan_args_set_operand(args, 0, text(c"weights"), filters.as_ptr().cast()));
        call!(fuseplan_args_set_operand(args, 1, text(c"bias"), bias.as_ptr().cast()));
        if let Some(residual) = residual {
            call!(fuseplan_args_set_operand(args, 2, text(c"bias"), residual.as_ptr().cast()));
        }
        let mut y = [f32::NAN; 48];
        let (input, output) = (x.as_ptr().cast(), y.as_mut_ptr().cast());
        call!(fuseplan_execute(handle, compiled, args, input, output, null_mut(), 0));
        y
    };
    let (enters, blocked) = layer(x, OF_4, true);
    let (leaves, _) = layer(blocked, LAST, false);
    let residual = in_blocks(&values, 8, 4);
    let inside = run(enters, &values, Some(&residual));
    assert_eq!(inside[..], *in_blocks(&values.iter().map(|v| 2.0 * v + 100.0).collect::<Vec<_>>(), 8, 4));
    let outside = run(leaves, &inside, None);
    // Channels last is one block of all channels.
    assert_eq!(outside[..], *in_blocks(&values.iter().map(|v| 2.0 * v + 200.0).collect::<Vec<_>>(), 8, 8));

    let plan = create!(fuseplan_plan_create(; handle, x));
    let of = |w, layout| {
        status!(fuseplan_plan_append_convolution_to(
            plan,
            w,
            none(),
            none(),
            none(),
            none(),
            1,
            layout,
            nowhere()
        ))
    };
    assert_eq!(of(w, 9), INVALID_ARGUMENT);
    assert!(last_error().contains("9 is no layout of 4 dimensions; accepted: 0 ("), "{}", last_error());
    assert_eq!(of(tensor(F32, [6, 8, 1, 1]), OF_4), INVALID_ARGUMENT);
    let words = "NCHWc4 has blocks of 4 channels, the tensor has 6 channels";
    assert!(
        last_error().contains("ConvForward (operator 0)") && last_error().contains(words),
        "{}",
        last_error()
    );
    assert_eq!(of(w, FIRST), 0, "the plan is as it was");
}

#[test]
fn an_output_is_a_slice_of_a_larger_tensor() {
    let handle = cpu();
    let plan = create!(fuseplan_plan_create(; handle, tensor(F32, [2, 2, 2, 2])));
    let w = tensor(F32, [2, 2, 1, 1]);
    let append = |strides: Option<&[usize; 4]>| {
        // SAFETY: there are as many strides as the plan has dimensions, and they live over the call.
        let strides = strides.map_or(none(), |strides| unsafe { In::new(strides.as_ptr()) });
        status!(fuseplan_plan_append_convolution_into(
            plan,
            w,
            none(),
            none(),
            none(),
            none(),
            1,
            strides,
            nowhere()
        ))
    };
    assert_eq!(append(None), INVALID_ARGUMENT);
    assert!(last_error().contains("`output_strides` is NULL"), "{}", last_error());
    assert_eq!(append(Some(&[8, 2, 2, 1])), INVALID_ARGUMENT);
    assert!(last_error().contains("ConvForward (operator 0)"), "{}", last_error());
    assert!(last_error().contains("strides with which no elements overlap"), "{}", last_error());
    // The last two of five channels.
    assert_eq!(append(Some(&[20, 4, 2, 1])), 0);
    let compiled = create!(fuseplan_plan_compile(plan, handle, 0;));
    let args = create!(fuseplan_args_create(; plan));
    let (filters, x) = ([0.0f32, 1.0, 1.0, 0.0], (0..16u8).map(f32::from).collect::<Vec<_>>());
    call!(fuseplan_args_set_operand(args, 0, text(c"weights"), filters.as_ptr().cast()));
    let mut whole = [f32::NAN; 40];
    let (input, output) = (x.as_ptr().cast(), whole[12..].as_mut_ptr().cast());
    call!(fuseplan_execute(handle, compiled, args, input, output, null_mut(), 0));
    for (at, value) in whole.iter().enumerate() {
        let (image, channel, pixel) = (at / 20, at / 4 % 5, at % 4);
        match channel {
            // Filters swap the channels.
            3 | 4 => assert_eq!(*value, x[image * 8 + (4 - channel) * 4 + pixel]),
            _ => assert!(value.is_nan(), "{at}: {value}"),
        }
    }
}

#[test]
fn the_fastest_layouts_are_those_that_the_channels_have() {
    let (handle, mut count) = (cpu(), 0);
    let (mut layouts, mut seconds) = ([9u32; 5], [0f64; 5]);
    let plan = create!(fuseplan_plan_create(; handle, tensor(F32, [1, 24, 3, 3])));
    refused!(
        INVALID_ARGUMENT,
        "",
        fuseplan_plan_fastest_layouts(plan, handle, 0, 5, out(&mut count), nowhere(), nowhere())
    );
    call!(fuseplan_plan_append_activation(plan, RELU, 0.0, 0.0, 0.0, nowhere()));
    let (layouts_out, seconds_out) = (out_all(&mut layouts), out_all(&mut seconds));
    call!(fuseplan_plan_fastest_layouts(plan, handle, 0, 2, out(&mut count), layouts_out, seconds_out));
    assert_eq!(
        (count, &layouts[2..], &seconds[2..]),
        (4, &[9, 9, 9][..], &[0.0; 3][..]),
        "there is room for two"
    );
    let (layouts_out, seconds_out) = (out_all(&mut layouts), out_all(&mut seconds));
    call!(fuseplan_plan_fastest_layouts(plan, handle, 0, 5, out(&mut count), layouts_out, seconds_out));
    // 24 channels are no blocks of 16.
    assert_eq!((count, layouts[4], seconds[4]), (4, 9, 0.0));
    assert!(seconds[..4].is_sorted() && seconds[0] > 0.0, "{seconds:?}");
    layouts[..4].sort_unstable();
    assert_eq!(layouts[..4], [0, 1, 2, 3]);
    call!(fuseplan_plan_fastest_layouts(plan, handle, 0, 0, nowhere(), nowhere(), nowhere()));
}

#[test]
fn many_plans_are_compiled_at_once() {
    let handle = cpu();
    let plans: Vec<_> = [2usize, 3, 2]
        .map(|width| {
            let plan = create!(fuseplan_plan_create(; handle, tensor(F32, [1, 1, 1, width])));
            call!(fuseplan_plan_append_activation(plan, RELU, 0.0, 0.0, 0.0, nowhere()));
            plan
        })
        .into();
    let mut compiled = [Ref::NULL; 3];
    call!(fuseplan_plans_compile(from(&plans), 3, handle, 0, out_all(&mut compiled)));
    for (plan, compiled) in plans.iter().zip(compiled) {
        let args = create!(fuseplan_args_create(; *plan));
        let (x, mut y) = ([-1.0f32, 2.0, 3.0], [f32::NAN; 3]);
        let (input, output) = (x.as_ptr().cast(), y.as_mut_ptr().cast());
        call!(fuseplan_execute(handle, compiled, args, input, output, null_mut(), 0));
        assert_eq!(y[..2], [0.0, 2.0]);
        call!(fuseplan_compiled_destroy(compiled));
    }
    call!(fuseplan_plans_compile(from(&plans), 0, handle, 0, out_all(&mut compiled)));
    refused!(
        INVALID_ARGUMENT,
        "`plans` is NULL",
        fuseplan_plans_compile(none(), 1, handle, 0, out_all(&mut compiled))
    );
    refused!(
        INVALID_ARGUMENT,
        "`compiled` is NULL",
        fuseplan_plans_compile(from(&plans), 3, handle, 0, nowhere())
    );
    // An empty plan among them; nothing is written.
    let empty = create!(fuseplan_plan_create(; handle, tensor(F32, [1, 1, 1, 2])));
    let plans = [plans[0], empty, plans[1]];
    let mut compiled = [Ref::NULL; 3];
    let status = status!(fuseplan_plans_compile(from(&plans), 3, handle, 0, out_all(&mut compiled)));
    assert!(status != 0 && last_error().contains("plan 1: "), "{}", last_error());
    assert!(compiled.iter().all(|one| *one == Ref::NULL));
}

#[test]
fn scalars_have_the_values_of_the_append_until_they_are_set() {
    let handle = cpu();
    let x = tensor(F32, [1, 1, 1, 2]);
    let plan = create!(fuseplan_plan_create(; handle, x));
    const LEAKY_RELU: u32 = 8;
    call!(fuseplan_plan_append_activation(plan, LEAKY_RELU, 0.5, 0.0, 0.0, nowhere()));
    let compiled = create!(fuseplan_plan_compile(plan, handle, 0;));
    let args = create!(fuseplan_args_create(; plan));
    let mut data = [-8.0f32, 8.0];
    let pointer: *mut c_void = data.as_mut_ptr().cast();
    call!(fuseplan_execute(handle, compiled, args, pointer, pointer, null_mut(), 0));
    assert_eq!(data, [-4.0, 8.0]);
    call!(fuseplan_args_set_scalar(args, 0, text(c"activ_alpha"), 0.25));
    call!(fuseplan_execute(handle, compiled, args, pointer, pointer, null_mut(), 0));
    assert_eq!(data, [-1.0, 8.0]);
}

#[test]
fn parameters_have_a_type_of_their_own() {
    const SPATIAL: u32 = 1;
    let handle = cpu();
    let plan = create!(fuseplan_plan_create(; handle, tensor(F16, [1, 1, 1, 2])));
    call!(fuseplan_plan_append_bias(plan, F32, nowhere()));
    call!(fuseplan_plan_append_batch_norm(plan, SPATIAL, F16, nowhere()));
    let compiled = create!(fuseplan_plan_compile(plan, handle, 0;));
    let args = create!(fuseplan_args_create(; plan));
    // 1.0 and 0.0 of f16.
    let (bias, [one, zero], mut data) = ([1.0f32], [[0x3c00u16], [0]], [0u16; 2]);
    call!(fuseplan_args_set_operand(args, 0, text(c"bias"), bias.as_ptr().cast()));
    for (name, value) in [(c"scale", &one), (c"bias", &one), (c"mean", &zero), (c"variance", &one)] {
        call!(fuseplan_args_set_operand(args, 1, text(name), value.as_ptr().cast()));
    }
    call!(fuseplan_args_set_scalar(args, 1, text(c"epsilon"), 0.0));
    let pointer: *mut c_void = data.as_mut_ptr().cast();
    call!(fuseplan_execute(handle, compiled, args, pointer, pointer, null_mut(), 0));
    assert_eq!(data, [0x4000; 2], "twice 2.0");
}

#[test]
fn slopes_are_one_for_each_channel_or_one() {
    let handle = cpu();
    let plan = create!(fuseplan_plan_create(; handle, tensor(F32, [1, 2, 1, 2])));
    call!(fuseplan_plan_append_prelu(plan, F32, 2, nowhere()));
    call!(fuseplan_plan_append_prelu(plan, F32, 1, nowhere()));
    let compiled = create!(fuseplan_plan_compile(plan, handle, 0;));
    let args = create!(fuseplan_args_create(; plan));
    let (each, one, mut data) = ([0.5f32, -1.0], [0.25f32], [-8.0f32, 8.0, -2.0, 2.0]);
    call!(fuseplan_args_set_operand(args, 0, text(c"slope"), each.as_ptr().cast()));
    call!(fuseplan_args_set_operand(args, 1, text(c"slope"), one.as_ptr().cast()));
    let pointer: *mut c_void = data.as_mut_ptr().cast();
    call!(fuseplan_execute(handle, compiled, args, pointer, pointer, null_mut(), 0));
    assert_eq!(data, [-1.0, 8.0, 2.0, 2.0]);
    refused!(
        INVALID_ARGUMENT,
        "the slope has lengths [1, 3, 1, 1]",
        fuseplan_plan_append_prelu(plan, F32, 3, nowhere())
    );
}

#[test]
fn training_writes_results_by_name() {
    let handle = cpu();
    let plan = create!(fuseplan_plan_create(; handle, tensor(F32, [2, 1, 1, 2])));
    call!(fuseplan_plan_append_batch_norm_training(plan, 1, 1, nowhere()));
    let compiled = create!(fuseplan_plan_compile(plan, handle, 0;));
    let args = create!(fuseplan_args_create(; plan));
    let (x, scale, bias) = ([1.0f32, 3.0, 5.0, 7.0], [1.0f32], [0.0f32]);
    let (mut y, mut mean, mut running_mean, mut running_variance) =
        ([0.0f32; 4], [0.0f32], [0.0f32], [1.0f32]);
    call!(fuseplan_args_set_operand(args, 0, text(c"scale"), scale.as_ptr().cast()));
    call!(fuseplan_args_set_operand(args, 0, text(c"bias"), bias.as_ptr().cast()));
    call!(fuseplan_args_set_result(args, 0, text(c"saved_mean"), mean.as_mut_ptr().cast()));
    call!(fuseplan_args_set_result(args, 0, text(c"running_mean"), running_mean.as_mut_ptr().cast()));
    let (input, output) = (x.as_ptr().cast(), y.as_mut_ptr().cast());
    refused!(
        INVALID_ARGUMENT,
        "running_variance",
        fuseplan_execute(handle, compiled, args, input, output, null_mut(), 0)
    );
    let running_variance = running_variance.as_mut_ptr().cast();
    call!(fuseplan_args_set_result(args, 0, text(c"running_variance"), running_variance));
    call!(fuseplan_execute(handle, compiled, args, input, output, null_mut(), 0));
    assert_eq!((mean, running_mean), ([4.0], [0.4]));
    assert!(y[0] < -1.3 && y[3] > 1.3, "{y:?}");
}

#[test]
fn what_does_not_fit_is_refused_where_it_is_appended() {
    let mut layer = Layer::new(cpu());
    let filters = tensor(F32, [CHANNELS, CHANNELS, 1, 1]);
    let pads = [1, 1];
    let plan = layer.plan;
    refused!(
        UNSUPPORTED,
        "ConvForward (operator 3): the plan already has a convolution; accepted: a second plan that starts with it",
        fuseplan_plan_append_convolution(plan, filters, none(), none(), from(&pads), none(), 1, nowhere())
    );
    let other = create!(fuseplan_plan_create(; layer.handle, tensor(F32, [1, CHANNELS, 8, 8])));
    let narrow = tensor(F16, [CHANNELS, CHANNELS, 1, 1]);
    refused!(
        INVALID_ARGUMENT,
        "operator 0",
        fuseplan_plan_append_convolution(other, narrow, none(), none(), none(), none(), 1, nowhere())
    );
    refused!(
        INVALID_ARGUMENT,
        "group count",
        fuseplan_plan_append_convolution(other, filters, none(), none(), none(), none(), 0, nowhere())
    );
    refused!(INVALID_ARGUMENT, "99 is no data type", fuseplan_plan_append_bias(plan, 99, nowhere()));
    refused!(
        INVALID_ARGUMENT,
        "99 is no batch-norm mode",
        fuseplan_plan_append_batch_norm(plan, 99, F32, nowhere())
    );
    refused!(
        INVALID_ARGUMENT,
        "99 is no activation; accepted: 0 (",
        fuseplan_plan_append_activation(plan, 99, 0.0, 0.0, 0.0, nowhere())
    );
    refused!(
        INVALID_ARGUMENT,
        "accepted: the same lengths",
        fuseplan_plan_append_residual(plan, tensor(F32, [1, CHANNELS, 1, 1]), nowhere())
    );
    // The plan is as it was.
    let compiled = create!(fuseplan_plan_compile(plan, layer.handle, 0;));
    layer.set_weights();
    assert_eq!(layer.execute(compiled), 0, "{}", last_error());
}

#[test]
fn arguments_go_by_the_operators_own_names() {
    let mut layer = Layer::new(cpu());
    let (args, data) = (layer.args, layer.weights.as_mut_ptr().cast::<c_void>());
    refused!(
        INVALID_ARGUMENT,
        "ConvForward (operator 0) has no operand `bias`; accepted: weights",
        fuseplan_args_set_operand(args, 0, text(c"bias"), data)
    );
    refused!(
        INVALID_ARGUMENT,
        "ActivationForward (operator 2) has no operand `y`; accepted: none",
        fuseplan_args_set_constant_operand(args, 2, text(c"y"), data)
    );
    refused!(
        INVALID_ARGUMENT,
        "ConvForward (operator 0) reads `weights`; accepted: fuseplan_args_set_operand",
        fuseplan_args_set_result(args, 0, text(c"weights"), data)
    );
    refused!(
        INVALID_ARGUMENT,
        "ActivationForward (operator 2) has no scalar `epsilon`; accepted: activ_alpha, activ_beta, activ_gamma",
        fuseplan_args_set_scalar(args, 2, text(c"epsilon"), 1.0)
    );
    refused!(
        INVALID_ARGUMENT,
        "there is no operator 3; the arguments are of 3",
        fuseplan_args_set_scales(args, 3, 1.0, 0.0)
    );
    refused!(INVALID_ARGUMENT, "`name` is NULL", fuseplan_args_set_scalar(args, 2, none(), 1.0));

    assert_eq!(layer.execute(layer.compiled), INVALID_ARGUMENT);
    assert!(last_error().contains("weights") && last_error().contains("operator 0"), "{}", last_error());

    // Arguments are made for the operators that the plan had then.
    call!(fuseplan_plan_append_bias(layer.plan, F32, nowhere()));
    let longer = create!(fuseplan_plan_compile(layer.plan, layer.handle, 0;));
    layer.set_weights();
    assert_eq!(layer.execute(longer), INVALID_ARGUMENT);
    let expected = "the arguments are of the operators ConvForward, BiasForward, ActivationForward; what was \
                    compiled has ConvForward, BiasForward, ActivationForward, BiasForward";
    assert!(last_error().contains(expected), "{}", last_error());
    assert_eq!(layer.output(), 32.0, "what was compiled before computes what it was");
}

#[test]
fn binaries_are_loaded_where_they_fit() {
    let mut layer = Layer::new(cpu());
    layer.set_weights();
    let binary = create!(fuseplan_plan_compile_binary(layer.plan, layer.handle, 0;));
    let (mut data, mut size) = (null::<c_void>(), 0);
    call!(fuseplan_binary_data(binary, out(&mut data), out(&mut size)));
    // SAFETY: as the call says.
    let mut bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) }.to_vec();
    call!(fuseplan_binary_destroy(binary));

    fn any(bytes: &[u8]) -> In<c_void> {
        // SAFETY: the tests say how many there are, and keep them alive.
        unsafe { In::new(bytes.as_ptr().cast()) }
    }
    let loaded = create!(fuseplan_plan_load(layer.plan, layer.handle, 0, any(&bytes), bytes.len();));
    layer.shift.fill(1.0);
    assert_eq!(layer.execute(loaded), 0, "{}", last_error());

    let mut compiled = Ref::NULL;
    let size = bytes.len();
    refused!(
        INVALID_ARGUMENT,
        "",
        fuseplan_plan_load(layer.plan, layer.handle, 0, any(&bytes), size - 1, out(&mut compiled))
    );
    // The plan is another one where TF32 is allowed.
    refused!(
        INVALID_ARGUMENT,
        "",
        fuseplan_plan_load(layer.plan, layer.handle, 2, any(&bytes), size, out(&mut compiled))
    );
    bytes[size / 2] ^= 1;
    refused!(
        INVALID_ARGUMENT,
        "",
        fuseplan_plan_load(layer.plan, layer.handle, 0, any(&bytes), size, out(&mut compiled))
    );
    refused!(
        INVALID_ARGUMENT,
        "`data` is NULL",
        fuseplan_plan_load(layer.plan, layer.handle, 0, none(), size, out(&mut compiled))
    );
    assert!(compiled == Ref::NULL, "a call that fails writes nothing");
}

#[test]
fn texts_say_what_is_chosen_and_what_is_supported() {
    let layer = Layer::new(cpu());
    let (plan, handle) = (layer.plan, layer.handle);
    let explanation = read(|text, size| status!(fuseplan_plan_explain(plan, handle, 0, text, size)));
    assert!(explanation.contains("solver     cpu."), "{explanation}");
    let supported = read(|text, size| status!(fuseplan_handle_supported(handle, text, size)));
    assert!(supported.contains("cpu.reference.v1"), "{supported}");
    let empty = create!(fuseplan_plan_create(; Ref::NULL, tensor(F32, [1, 1, 1, 1])));
    let explanation = read(|text, size| status!(fuseplan_plan_explain(empty, handle, 0, text, size)));
    assert!(explanation.contains("refused    "), "{explanation}");
    refused!(
        INVALID_ARGUMENT,
        "0x9 has 0x8, which is no option",
        fuseplan_plan_explain(plan, handle, 9, nowhere(), nowhere())
    );
    refused!(
        INVALID_ARGUMENT,
        "exclude each other",
        fuseplan_plan_explain(plan, handle, 6, nowhere(), nowhere())
    );
}

#[test]
fn tensors_are_what_was_said() {
    let (lens, strides) = ([2, 3, 4, 5], [100, 1, 20, 4]);
    let strided = create!(fuseplan_tensor_create_strided(; F16, 4, from(&lens), from(&strides)));
    let (mut data_type, mut rank, mut found, mut bytes) = (9, 0, [[0usize; 5]; 2], 0);
    let [found_lens, found_strides] = &mut found;
    // SAFETY: there is room for as many numbers as a tensor has dimensions.
    let [lens_out, strides_out] =
        [found_lens, found_strides].map(|list| unsafe { Out::new(list.as_mut_ptr()) });
    call!(fuseplan_tensor_get(strided, out(&mut data_type), out(&mut rank), lens_out, strides_out));
    assert_eq!((data_type, rank, found), (F16, 4, [[2, 3, 4, 5, 0], [100, 1, 20, 4, 0]]));
    call!(fuseplan_tensor_bytes(strided, out(&mut bytes)));
    assert_eq!(bytes, 2 * (100 + 2 + 3 * 20 + 4 * 4 + 1));

    let last = create!(fuseplan_tensor_create(; F32, 1, 4, from(&lens)));
    let [_, found_strides] = &mut found;
    // SAFETY: there is room for as many numbers as a tensor has dimensions.
    let strides_out = unsafe { Out::new(found_strides.as_mut_ptr()) };
    call!(fuseplan_tensor_get(last, nowhere(), nowhere(), nowhere(), strides_out));
    assert_eq!(found[1][..4], [60, 1, 15, 3]);

    let place = || out(Box::leak(Box::new(Ref::NULL)));
    refused!(
        INVALID_ARGUMENT,
        "3 dimensions have no layout",
        fuseplan_tensor_create(place(), F32, 0, 3, from(&lens))
    );
    refused!(INVALID_ARGUMENT, "7 is no layout", fuseplan_tensor_create(place(), F32, 7, 4, from(&lens)));
    // Blocks of 4 channels, which have no strides.
    let blocked = create!(fuseplan_tensor_create(; F32, 2, 4, from(&[1, 8, 2, 3])));
    let (mut bytes, mut layout) = (0, 9);
    call!(fuseplan_tensor_bytes(blocked, out(&mut bytes)));
    call!(fuseplan_tensor_layout(blocked, out(&mut layout)));
    assert_eq!((bytes, layout), (4 * 48, 2));
    refused!(
        INVALID_ARGUMENT,
        "strides 100x1x20x4 has no layout",
        fuseplan_tensor_layout(strided, out(&mut layout))
    );
    refused!(INVALID_ARGUMENT, "`layout` is NULL", fuseplan_tensor_layout(blocked, nowhere()));
    // SAFETY: there is room for as many numbers as a tensor has dimensions.
    let strides_out = unsafe { Out::new(found[1].as_mut_ptr()) };
    refused!(
        INVALID_ARGUMENT,
        "strides of f32 1x8x2x3 NCHWc4",
        fuseplan_tensor_get(blocked, nowhere(), nowhere(), nowhere(), strides_out)
    );
    refused!(
        INVALID_ARGUMENT,
        "blocks of 16 channels, the tensor has 8",
        fuseplan_tensor_create(place(), F32, 4, 4, from(&[1, 8, 2, 3]))
    );
    refused!(INVALID_ARGUMENT, "2 is no layout", fuseplan_tensor_create(place(), F32, 2, 5, from(&[1; 5])));
    refused!(INVALID_ARGUMENT, "`lens` is NULL", fuseplan_tensor_create(place(), F32, 0, 4, none()));
    refused!(
        INVALID_ARGUMENT,
        "6 dimensions; accepted: 1 to 5",
        fuseplan_tensor_create_strided(place(), F32, 6, from(&lens), from(&strides))
    );
    refused!(INVALID_ARGUMENT, "`tensor` is NULL", fuseplan_tensor_create(nowhere(), F32, 0, 4, from(&lens)));
}

#[test]
fn handles_are_opened_by_name_and_number() {
    let place = || out(Box::leak(Box::new(Ref::NULL)));
    refused!(UNAVAILABLE, "tpu", fuseplan_handle_create(place(), text(c"tpu"), -1));
    refused!(INVALID_ARGUMENT, "-2 is no device", fuseplan_handle_create(place(), text(c"cpu"), -2));
    refused!(INVALID_ARGUMENT, "`backend` is NULL, and 0", fuseplan_handle_create(place(), none(), 0));
    refused!(UNAVAILABLE, "cpu", fuseplan_handle_create(place(), text(c"cpu"), 7));
    call!(fuseplan_handle_create(place(), text(c"cpu"), 0));
    let two = create!(fuseplan_handle_create_cpu(; 2));
    let mut layer = Layer::new(two);
    layer.set_weights();
    assert_eq!(layer.output(), 32.0);
    call!(fuseplan_handle_set_stream(two, null_mut()));
    call!(fuseplan_handle_synchronize(two));
    assert_ne!(status!(fuseplan_handle_create_cpu(place(), 0)), 0);
    refused!(
        INVALID_ARGUMENT,
        "`parallel_for` is NULL",
        fuseplan_handle_create_parallel_for(place(), 2, None, null_mut())
    );
}

#[test]
fn the_callers_loop_computes() {
    unsafe extern "C" fn one_after_another(
        context: *mut c_void,
        count: usize,
        work: unsafe extern "C" fn(*mut c_void, usize),
        argument: *mut c_void,
    ) {
        // SAFETY: the context is the test's counter, and the work is called as it says.
        unsafe {
            (*context.cast::<std::sync::atomic::AtomicUsize>())
                .fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            (0..count).for_each(|index| work(argument, index));
        }
    }
    let calls: &'static _ = Box::leak(Box::new(std::sync::atomic::AtomicUsize::new(0)));
    let context = std::ptr::from_ref(calls).cast_mut().cast();
    let handle = create!(fuseplan_handle_create_parallel_for(; 3, Some(one_after_another), context));
    // Large enough to be shared out.
    let x = tensor(F32, [1, 64, 64, 64]);
    let plan = create!(fuseplan_plan_create(; handle, x));
    call!(fuseplan_plan_append_activation(plan, RELU, 0.0, 0.0, 0.0, nowhere()));
    let compiled = create!(fuseplan_plan_compile(plan, handle, 0;));
    let args = create!(fuseplan_args_create(; plan));
    let (ones, mut y) = (vec![1.0f32; 64 * 64 * 64], vec![f32::NAN; 64 * 64 * 64]);
    let (input, output) = (ones.as_ptr().cast(), y.as_mut_ptr().cast());
    call!(fuseplan_execute(handle, compiled, args, input, output, null_mut(), 0));
    assert_eq!(y, ones);
    assert!(calls.load(std::sync::atomic::Ordering::SeqCst) > 0);
}

/// All that is NULL, one call of each function; then handles that are something else.
#[test]
fn misuse_is_told_and_does_nothing() {
    for prototype in prototypes() {
        let bits = vec![0; prototype.parameters.len()];
        // SAFETY: NULL promises nothing.
        let status = unsafe { (prototype.call)(&bits) };
        if prototype.name.ends_with("_destroy") {
            assert_eq!(status, 0, "{}: destroying NULL", prototype.name);
            continue;
        }
        assert_eq!(status, INVALID_ARGUMENT, "{}", prototype.name);
        assert!(last_error().starts_with(&format!("{}: ", prototype.name)), "{}", last_error());
        assert!(last_error().contains("NULL"), "{}", last_error());

        let handle = cpu();
        let plan = create!(fuseplan_plan_create(; handle, tensor(F32, [1, 1, 1, 1])));
        call!(fuseplan_plan_destroy(plan));
        for wrong in [handle.bits(), plan.bits(), 0xdead_beef, u64::MAX] {
            let is_handle = |ty: &&&str| ty.ends_with("_t") && !ty.contains('<');
            let first = prototype.parameters.first().filter(is_handle);
            let Some(first) = first.filter(|ty| wrong != handle.bits() || **ty != "fuseplan_handle_t") else {
                continue;
            };
            let mut bits = bits.clone();
            bits[0] = wrong;
            // SAFETY: a handle is any number, and NULL promises nothing.
            let status = unsafe { (prototype.call)(&bits) };
            assert_eq!(status, INVALID_ARGUMENT, "{} of a {first} {wrong:#x}", prototype.name);
        }
    }
    let handle = cpu();
    call!(fuseplan_handle_destroy(handle));
    refused!(INVALID_ARGUMENT, "the handle was destroyed", fuseplan_handle_synchronize(handle));
    let plan = create!(fuseplan_plan_create(; Ref::NULL, tensor(F32, [1, 1, 1, 1])));
    call!(fuseplan_plan_append_activation(plan, RELU, 0.0, 0.0, 0.0, nowhere()));
    refused!(INVALID_ARGUMENT, "the handle is NULL", fuseplan_plan_compile(plan, Ref::NULL, 0, nowhere()));
}

#[test]
fn what_the_library_is() {
    // SAFETY: static C strings.
    let [version, name] =
        [fuseplan_version(), fuseplan_status_string(0)].map(|text| unsafe { CStr::from_ptr(text) });
    assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
    assert_eq!(name, c"FUSEPLAN_SUCCESS");
}
