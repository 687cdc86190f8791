//! Descriptors that say the same in other words, and descriptors that say nothing yet.

use std::ffi::{c_int, c_void};

use MIOpen::abi::Out;
use MIOpen::*;

use crate::common::{any, convolution, cpu, discarded, from, last_error, none, out, strided, tensor};

const BAD_PARM: u32 = 3;

/// One filter in NHWC, in whose tensors some strides mean nothing.
#[test]
fn strides_of_single_elements_are_not_compared() {
    let handle = cpu();
    let input: Vec<f32> = (0..176).map(|i| (i % 13) as f32).collect();
    let rest: Vec<f32> = (0..88).map(|i| (i % 5) as f32).collect();
    let expected: Vec<f32> = (0..88).map(|i| 2.0 * input[2 * i] + 3.0 * input[2 * i + 1] + rest[i]).collect();
    for junk in [0, 1, 11, 88, c_int::MAX] {
        let plan = create!(miopenCreateFusionPlan(0, strided([1, 2, 8, 11], [176, 1, 22, 2])));
        let (mut conv, mut residual) = (Ref::NULL, Ref::NULL);
        let w = strided([1, 2, 1, 1], [junk, 1, junk, junk]);
        call!(miopenCreateOpConvForward(plan, out(&mut conv), convolution(0), w));
        let z = strided([1, 1, 8, 11], [junk, junk, 11, 1]);
        call!(miopenCreateOpBiasForward(plan, out(&mut residual), z));
        call!(miopenCompileFusionPlan(handle, plan));
        let args = create!(miopenCreateOperatorArgs());
        let pointer = |data: &[f32]| data.as_ptr().cast::<c_void>();
        call!(miopenSetOpArgsConvForward(args, conv, none(), none(), pointer(&[2.0, 3.0])));
        call!(miopenSetOpArgsBiasForward(args, residual, none(), none(), pointer(&rest)));
        for other in [0, 1, 22, 88, 176, c_int::MAX] {
            let x = strided([1, 2, 8, 11], [other, 1, 22, 2]);
            let y = strided([1, 1, 8, 11], [other, other, 11, 1]);
            let mut output = [f32::NAN; 88];
            let to: *mut c_void = output.as_mut_ptr().cast();
            call!(miopenExecuteFusionPlan(handle, plan, x, pointer(&input), y, to, args));
            assert_eq!(output, *expected, "plan {junk}, execution {other}");
        }
        // Strides that mean something are compared as ever.
        let y = strided([1, 1, 8, 11], [88, 88, 1, 8]);
        let mut output = [f32::NAN; 88];
        let to: *mut c_void = output.as_mut_ptr().cast();
        let x = strided([1, 2, 8, 11], [176, 1, 22, 2]);
        assert_eq!(status!(miopenExecuteFusionPlan(handle, plan, x, pointer(&input), y, to, args)), BAD_PARM);
        assert!(last_error().contains("output descriptor"), "{}", last_error());
    }
}

/// MIOpen's getters tell one padding for both sides, or nothing.
#[test]
fn padding_may_differ_before_and_after() {
    const UNSUPPORTED: u32 = 8;
    fn list<T: Copy>(places: &mut [T]) -> Out<T> {
        // SAFETY: as `out`; the functions write as many as the tests have places.
        unsafe { Out::new(places.as_mut_ptr()) }
    }
    fn null<T: Copy>() -> Out<T> {
        // SAFETY: NULL promises nothing.
        unsafe { Out::new(std::ptr::null_mut()) }
    }
    let paddings = |conv| {
        let (mut before, mut after) = ([-1; 2], [-1; 2]);
        call!(fuseplanGetConvolutionPadding(conv, 2, list(&mut before), null()));
        call!(fuseplanGetConvolutionPadding(conv, 2, null(), list(&mut after)));
        (before, after)
    };
    let conv = convolution(1);
    assert_eq!(paddings(conv), ([1, 1], [1, 1]));
    call!(miopenInitConvolutionDescriptor(conv, 0, 1, 1, 2, 3, 1, 1));
    call!(fuseplanSetConvolutionPadding(conv, 2, from(&[0, 1]), from(&[1, 2])));
    assert_eq!(paddings(conv), ([0, 1], [1, 2]));
    let mut lens = [0; 5];
    let (x, w) = (tensor([1, 4, 8, 9]), tensor([6, 4, 3, 3]));
    let (mut dims, mut mode) = (0, 9);
    call!(miopenGetConvolutionNdForwardOutputDim(conv, x, w, out(&mut dims), list(&mut lens)));
    assert_eq!((dims, &lens[..4]), (4, &[1, 6, 4, 4][..]));

    let (mut pads, mut strides) = ([-1; 2], [-1; 2]);
    let told = status!(miopenGetConvolutionNdDescriptor(
        conv,
        2,
        out(&mut dims),
        list(&mut pads),
        list(&mut strides),
        null(),
        out(&mut mode)
    ));
    assert_eq!((told, dims, pads, strides, mode), (UNSUPPORTED, 4, [-1; 2], [-1; 2], 9));
    assert!(last_error().contains("fuseplanGetConvolutionPadding"), "{}", last_error());
    let unpadded = list(&mut strides);
    call!(miopenGetConvolutionNdDescriptor(conv, 2, null(), null(), unpadded, null(), null()));
    assert_eq!(strides, [2, 3]);
    let (mut pad, mut stride) = (-1, -1);
    let (pad_w, stride_w) = (out(&mut pad), out(&mut stride));
    let told = status!(miopenGetConvolutionDescriptor(
        conv,
        null(),
        null(),
        pad_w,
        null(),
        stride_w,
        null(),
        null()
    ));
    assert_eq!((told, pad, stride), (UNSUPPORTED, -1, -1));
    call!(miopenGetConvolutionDescriptor(conv, null(), null(), null(), null(), stride_w, null(), null()));
    assert_eq!(stride, 3);

    // What is refused changes nothing; MIOpen's own functions set both sides again.
    let good = from(&[0, 0]);
    for (dims, before, after) in
        [(3, good, good), (2, from(&[0, -1]), good), (2, good, from(&[-1, 0])), (-1, good, good)]
    {
        assert_eq!(status!(fuseplanSetConvolutionPadding(conv, dims, before, after)), BAD_PARM);
    }
    assert_eq!(status!(fuseplanGetConvolutionPadding(conv, 3, null(), null())), BAD_PARM);
    assert_eq!(paddings(conv), ([0, 1], [1, 2]));
    call!(miopenInitConvolutionDescriptor(conv, 0, 2, 3, 1, 1, 1, 1));
    assert_eq!(paddings(conv), ([2, 3], [2, 3]));
}

/// A single place is NCHW and NHWC at once, also for calls that look at strides themselves.
#[test]
fn a_single_place_fits_both_layouts() {
    let (handle, args) = (cpu(), create!(miopenCreateOperatorArgs()));
    let (nchw, nhwc) = ([64, 1, 1, 1], [64, 1, 64, 64]);
    let data: Vec<f32> = (0..64).map(|i| i as f32 - 32.0).collect();
    for (planned, executed) in [(nchw, nhwc), (nhwc, nchw)] {
        let lens = [1, 64, 1, 1];
        let plan = create!(miopenCreateFusionPlan(0, strided(lens, planned)));
        let mut relu = Ref::NULL;
        call!(miopenCreateOpActivationForward(plan, out(&mut relu), 3));
        call!(miopenSetOpArgsActivForward(args, relu, none(), none(), 0.0, 0.0, 0.0));
        call!(miopenCompileFusionPlan(handle, plan));
        let (x, mut output) = (strided(lens, executed), [f32::NAN; 64]);
        let (input, to): (*const c_void, *mut c_void) = (data.as_ptr().cast(), output.as_mut_ptr().cast());
        call!(miopenExecuteFusionPlan(handle, plan, x, input, x, to, args));
        assert!(output.iter().zip(&data).all(|(y, x)| *y == x.max(0.0)));
    }
}

/// What MIOpen takes for a batch-norm behind a convolution: it looks at the mode and at nothing else.
#[test]
fn a_batch_norm_descriptor_derived_from_the_input_is_taken_where_its_meaning_is_certain() {
    const SPATIAL: u32 = 1;
    const PER_ACTIVATION: u32 = 0;
    let handle = cpu();
    let x = tensor([1, 2, 4, 4]);
    let derived = |from, mode| {
        let derived = create!(miopenCreateTensorDescriptor());
        call!(miopenDeriveBNTensorDescriptor(derived, from, mode));
        derived
    };
    // Input channels, filters of 3x3, and so an output of 2x2.
    let plan = |filters| {
        let (plan, mut conv) = (create!(miopenCreateFusionPlan(0, x)), Ref::NULL);
        call!(miopenCreateOpConvForward(plan, out(&mut conv), convolution(0), tensor([filters, 2, 3, 3])));
        (plan, conv)
    };
    let append = |filters, descriptor, mode| {
        let mut op = Ref::NULL;
        status!(miopenCreateOpBatchNormInference(plan(filters).0, out(&mut op), mode, descriptor))
    };
    // One value a channel, whatever number of channels the input has.
    for filters in [1, 2, 3, 8] {
        assert_eq!(append(filters, derived(x, SPATIAL), SPATIAL), 0);
        let y = tensor([1, filters, 2, 2]);
        assert_eq!(append(filters, derived(y, SPATIAL), SPATIAL), 0);
        assert_eq!(append(filters, derived(y, PER_ACTIVATION), PER_ACTIVATION), 0);
        assert_eq!(append(filters, derived(y, PER_ACTIVATION), SPATIAL), 0);
        // As many values as the input has activations: for the output that is another number.
        assert_eq!(append(filters, derived(x, PER_ACTIVATION), PER_ACTIVATION), BAD_PARM);
        let same_channels = append(filters, derived(x, PER_ACTIVATION), SPATIAL) == 0;
        assert_eq!(same_channels, filters == 2);
        // Neither the input's nor the output's.
        assert_eq!(append(filters, tensor([1, 5, 1, 1]), SPATIAL), BAD_PARM);
        assert_eq!(append(filters, derived(y, SPATIAL), PER_ACTIVATION), BAD_PARM);
        assert!(last_error().contains("BatchNormInference (operator 1)"), "{}", last_error());
    }

    // And it computes what it says: three channels, each with parameters of its own.
    let (plan, conv) = plan(3);
    let mut norm = Ref::NULL;
    call!(miopenCreateOpBatchNormInference(plan, out(&mut norm), SPATIAL, derived(x, SPATIAL)));
    call!(miopenCompileFusionPlan(handle, plan));
    let args = create!(miopenCreateOperatorArgs());
    let (input, weights) = ([1.0f32; 32], [1.0f32; 54]);
    let (scale, bias, mean, variance) =
        ([1.0f32, 2.0, 4.0], [5.0f32, 6.0, 7.0], [8.0f32, 4.0, 2.0], [1.0f32; 3]);
    let pointer = |data: &[f32]| data.as_ptr().cast::<c_void>();
    let [s, b, m, v] = [&scale, &bias, &mean, &variance].map(|values| pointer(values));
    call!(miopenSetOpArgsConvForward(args, conv, none(), none(), pointer(&weights)));
    call!(miopenSetOpArgsBatchNormInference(args, norm, none(), none(), s, b, m, v, 0.0));
    let mut output = [f32::NAN; 12];
    let (y, to): (_, *mut c_void) = (tensor([1, 3, 2, 2]), output.as_mut_ptr().cast());
    call!(miopenExecuteFusionPlan(handle, plan, x, pointer(&input), y, to, args));
    let expected: Vec<f32> =
        (0..12).map(|i| i / 4).map(|c: usize| scale[c] * (18.0 - mean[c]) + bias[c]).collect();
    assert_eq!(output, *expected);
}

/// NCHWc4: two blocks of four channels, each an image with these innermost.
#[test]
fn channels_may_lie_in_blocks() {
    const NOT_IMPLEMENTED: u32 = 6;
    let blocked = |lens: [c_int; 4]| {
        let tensor = create!(miopenCreateTensorDescriptor());
        call!(miopenSetNdTensorDescriptorWithLayout(tensor, 1, 3, from(&lens), 4));
        tensor
    };
    let x = blocked([1, 8, 2, 3]);
    // SAFETY: NULL is allowed.
    let no_type = || unsafe { Out::new(std::ptr::null_mut()) };
    let (mut lens, mut strides, mut bytes) = ([7; 4], [7; 4], 7);
    // SAFETY: room for four numbers each; NULL is allowed.
    let (all, nowhere, some) = unsafe {
        (Out::new(lens.as_mut_ptr()), Out::new(std::ptr::null_mut()), Out::new(strides.as_mut_ptr()))
    };
    call!(miopenGetTensorDescriptor(x, no_type(), all, nowhere));
    call!(miopenGetTensorNumBytes(x, out(&mut bytes)));
    assert_eq!((lens, bytes), ([1, 8, 2, 3], 4 * 8 * 6));
    assert_eq!(status!(miopenGetTensorDescriptor(x, no_type(), nowhere, some)), NOT_IMPLEMENTED);
    assert!(last_error().contains("strides of f32 1x8x2x3 NCHWc4"), "{}", last_error());
    assert_eq!(strides, [7; 4]);

    // Channel c of pixel p is 10·p + c; the filters are ones, but for the second, which takes channel 5.
    let handle = cpu();
    let input: Vec<f32> = (0..48).map(|i| (10 * (i % 24 / 4) + i / 24 * 4 + i % 4) as f32).collect();
    let weights: Vec<f32> = (0..8 * 8).map(|i| if i / 8 != 1 || i % 8 == 5 { 1.0 } else { 0.0 }).collect();
    let plan = create!(miopenCreateFusionPlan(0, x));
    let mut conv = Ref::NULL;
    call!(miopenCreateOpConvForward(plan, out(&mut conv), convolution(0), tensor([8, 8, 1, 1])));
    call!(miopenCompileFusionPlan(handle, plan));
    let args = create!(miopenCreateOperatorArgs());
    let pointer = |data: &[f32]| data.as_ptr().cast::<c_void>();
    call!(miopenSetOpArgsConvForward(args, conv, none(), none(), pointer(&weights)));
    let mut output = [f32::NAN; 48];
    let to: *mut c_void = output.as_mut_ptr().cast();
    let y = blocked([1, 8, 2, 3]);
    call!(miopenExecuteFusionPlan(handle, plan, x, pointer(&input), y, to, args));
    let expected = |i: usize| match (i % 24 / 4, i / 24 * 4 + i % 4) {
        (pixel, 1) => 10 * pixel + 5,
        (pixel, _) => 80 * pixel + 28,
    };
    assert!(output.iter().enumerate().all(|(i, &y)| y == expected(i) as f32), "{output:?}");
    // The same lengths in another order are another tensor.
    let y = tensor([1, 8, 2, 3]);
    assert_eq!(status!(miopenExecuteFusionPlan(handle, plan, x, pointer(&input), y, to, args)), BAD_PARM);
    assert!(last_error().contains("the plan's is f32 1x8x2x3 NCHWc4"), "{}", last_error());
    // Half a block, a layout of MIOpen's that is none here, and what takes strides alone.
    let odd = create!(miopenCreateTensorDescriptor());
    let set = |layout, lens: [c_int; 4]| {
        status!(miopenSetNdTensorDescriptorWithLayout(odd, 1, layout, from(&lens), 4))
    };
    assert_eq!(set(4, [1, 12, 2, 3]), BAD_PARM);
    assert!(last_error().contains("blocks of 8 channels, the tensor has 12"), "{}", last_error());
    assert_eq!(set(5, [1, 12, 2, 3]), NOT_IMPLEMENTED);
    let one = 1.0f32;
    // SAFETY: a number that lives over the call.
    let one = unsafe { abi::In::new(std::ptr::from_ref(&one).cast::<c_void>()) };
    assert_eq!(status!(miopenSetTensor(handle, x, to, one)), NOT_IMPLEMENTED);
    assert!(last_error().contains("tensors with strides"), "{}", last_error());
}

/// Placeholders: described, read back, of no bytes, and refused where they would be used.
#[test]
fn tensors_without_elements_can_be_described_and_not_used() {
    let handle = cpu();
    let sets: [&dyn Fn(miopenTensorDescriptor_t) -> u32; 5] = [
        &|t| status!(miopenSet4dTensorDescriptor(t, 1, 0, 0, 0, 0)),
        &|t| status!(miopenSet4dTensorDescriptor(t, 1, 0, 0, 0, 0)),
        &|t| status!(miopenSet4dTensorDescriptorEx(t, 1, 0, 0, 0, 0, 0, 0, 0, 0)),
        &|t| status!(miopenSetTensorDescriptor(t, 1, 4, from(&[0; 4]), from::<c_int>(&[0; 4]))),
        &|t| status!(miopenSetNdTensorDescriptorWithLayout(t, 1, 1, from(&[0; 4]), 4)),
    ];
    for set in sets {
        let empty = create!(miopenCreateTensorDescriptor());
        assert_eq!(set(empty), 0, "{}", last_error());
        let (mut lens, mut bytes) = ([7; 4], 7);
        // SAFETY: room for four lengths.
        let place = unsafe { abi::Out::new(lens.as_mut_ptr()) };
        // SAFETY: NULL is allowed.
        let nowhere = || unsafe { abi::Out::new(std::ptr::null_mut()) };
        // SAFETY: NULL is allowed for the type, too.
        let no_type = unsafe { abi::Out::new(std::ptr::null_mut()) };
        call!(miopenGetTensorDescriptor(empty, no_type, place, nowhere()));
        call!(miopenGetTensorNumBytes(empty, out(&mut bytes)));
        assert_eq!((lens, bytes), ([0; 4], 0));

        let refused = |status| {
            assert_eq!(status, BAD_PARM);
            assert!(
                last_error().contains("the tensor has lengths [0, 0, 0, 0], so no elements"),
                "{}",
                last_error()
            );
        };
        refused(status!(miopenCreateFusionPlan(discarded(), 0, empty)));
        refused(status!(miopenDeriveBNTensorDescriptor(tensor([1, 1, 1, 1]), empty, 1)));
        let plan = create!(miopenCreateFusionPlan(0, tensor([1, 2, 3, 3])));
        refused(status!(miopenCreateOpConvForward(plan, discarded(), convolution(0), empty)));
        let plan = create!(miopenCreateFusionPlan(0, tensor([1, 2, 3, 3])));
        refused(status!(miopenCreateOpBiasForward(plan, discarded(), empty)));
        let mut value = [1.0f32];
        let y: *mut c_void = value.as_mut_ptr().cast();
        refused(status!(miopenSetTensor(handle, empty, y, any(&[0.0f32]))));

        // It becomes a tensor when it is set again.
        call!(miopenSet4dTensorDescriptor(empty, 1, 1, 2, 3, 4));
        call!(miopenGetTensorNumBytes(empty, out(&mut bytes)));
        assert_eq!(bytes, 96);
    }
    // One length is enough, and a negative one is as wrong as ever.
    let tensor = create!(miopenCreateTensorDescriptor());
    call!(miopenSet4dTensorDescriptor(tensor, 1, 1, 0, 3, 4));
    assert_eq!(status!(miopenCreateFusionPlan(discarded(), 0, tensor)), BAD_PARM);
    assert_eq!(status!(miopenSet4dTensorDescriptor(tensor, 1, 1, -1, 3, 4)), BAD_PARM);
}
