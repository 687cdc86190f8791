//! Convolution descriptors.

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use fuseplan::{ConvolutionDescriptor, ConvolutionMode, TensorDescriptor};

use crate::abi::{
    In, Out, export, miopenConvolutionAttrib_t, miopenConvolutionFindMode_t, miopenConvolutionMode_t, to_int,
    to_size,
};
use crate::status::{Failure, Status, bad_parm};
use crate::table::{Ref, create, object};
use crate::tensor::miopenTensorDescriptor_t;

/// What a `miopenConvolutionDescriptor_t` names.
#[derive(Debug)]
pub struct ConvolutionObject {
    state: Mutex<State>,
}
object!(ConvolutionObject, Convolution, |convolution| {
    let state = convolution.state.lock().unwrap_or_else(PoisonError::into_inner);
    Some(format!("{}, group count {}", state.conv, state.groups))
});

/// C's `miopenConvolutionDescriptor_t`.
#[allow(non_camel_case_types, reason = "MIOpen's own name")]
pub type miopenConvolutionDescriptor_t = Ref<ConvolutionObject>;

/// The number of attributes.
const ATTRIBUTES: usize = 4;

#[derive(Debug, Clone)]
struct State {
    /// Everything but the groups, which C may set to nonsense.
    conv: ConvolutionDescriptor,
    groups: c_int,
    attributes: [c_int; ATTRIBUTES],
    find_mode: miopenConvolutionFindMode_t,
}

impl State {
    fn new(conv: ConvolutionDescriptor) -> Self {
        State { conv, groups: 1, attributes: [0; ATTRIBUTES], find_mode: 5 }
    }

    fn descriptor(&self) -> Result<ConvolutionDescriptor, Failure> {
        Ok(self.conv.with_groups(to_size(self.groups, "the group count")?)?)
    }
}

impl miopenConvolutionDescriptor_t {
    /// Reads or changes the state.
    fn with<R>(self, work: impl FnOnce(&mut State) -> Result<R, Failure>) -> Result<R, Failure> {
        let object = self.get()?;
        let mut state = object.state.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut state)
    }

    fn state(self) -> Result<State, Failure> {
        self.with(|state| Ok(state.clone()))
    }

    /// The descriptor, for computing with it.
    pub(crate) fn descriptor(self) -> Result<ConvolutionDescriptor, Failure> {
        self.state()?.descriptor()
    }
}

/// The mode, deprecated names as what they stand for.
fn mode(number: miopenConvolutionMode_t) -> Result<ConvolutionMode, Failure> {
    match number {
        0 | 2 | 3 => Ok(ConvolutionMode::Convolution),
        1 => Ok(ConvolutionMode::Transpose),
        _ => Err(bad_parm(format!("{number} is no convolution mode"))),
    }
}

fn sizes(values: &[c_int], what: &str) -> Result<Vec<usize>, Failure> {
    values.iter().map(|&value| to_size(value, what)).collect()
}

fn new(
    pads: &[c_int],
    strides: &[c_int],
    dilations: &[c_int],
    c_mode: miopenConvolutionMode_t,
) -> Result<State, Failure> {
    let (pads, strides) = (sizes(pads, "convolution padding")?, sizes(strides, "convolution stride")?);
    let dilations = sizes(dilations, "convolution dilation")?;
    let conv = ConvolutionDescriptor::of_dims(pads.len())?.with_pads(pads)?;
    let conv = conv.with_strides(strides)?.with_dilations(dilations)?;
    Ok(State::new(conv.with_mode(mode(c_mode)?)))
}

/// The output's lengths, for both directions of convolution.
fn output_lens(
    conv: &ConvolutionDescriptor,
    input: &TensorDescriptor,
    weights: &TensorDescriptor,
) -> Result<Vec<usize>, Failure> {
    if conv.mode() == ConvolutionMode::Convolution {
        return Ok(conv.forward_output(input, weights)?.lens().to_vec());
    }
    let rank = conv.spatial_dims() + 2;
    if input.rank() != rank || weights.rank() != rank {
        return Err(bad_parm(format!("a {}-D convolution takes tensors of {rank} dimensions", rank - 2)));
    }
    if input.lens()[1] != weights.lens()[0] {
        return Err(bad_parm(format!(
            "the filters have {} input channels, the input has {}",
            weights.lens()[0],
            input.lens()[1]
        )));
    }
    // A transposed convolution is the gradient of a convolution: extents come out as that one's input.
    let extent = |d: usize| {
        let spread = conv.strides()[d].checked_mul(input.spatial()[d] - 1)?;
        let reach = conv.dilations()[d].checked_mul(weights.spatial()[d] - 1)?;
        let full = spread.checked_add(reach)?.checked_add(conv.output_pads()[d])?.checked_add(1)?;
        let pads = conv.pads_before()[d].checked_add(conv.pads_after()[d])?;
        full.checked_sub(pads).filter(|&extent| extent > 0)
    };
    let channels = weights.lens()[1].checked_mul(conv.groups());
    let extents = (0..rank - 2).map(extent);
    let lens: Option<Vec<usize>> = [Some(input.lens()[0]), channels].into_iter().chain(extents).collect();
    lens.ok_or_else(|| bad_parm("the transposed convolution has no output"))
}

/// One padding for both sides of each dimension, which is all that MIOpen's getters can tell.
fn symmetric_pads(conv: &ConvolutionDescriptor) -> Result<&[usize], Failure> {
    if conv.pads_before() != conv.pads_after() {
        return Err(Failure::new(
            Status::UnsupportedOp,
            "padding before and after differ; fuseplanGetConvolutionPadding tells both",
        ));
    }
    Ok(conv.pads_before())
}

fn forward_output(
    conv: miopenConvolutionDescriptor_t,
    input: miopenTensorDescriptor_t,
    filter: miopenTensorDescriptor_t,
) -> Result<Vec<c_int>, Failure> {
    let lens = output_lens(&conv.descriptor()?, &input.descriptor()?, &filter.descriptor()?)?;
    lens.into_iter().map(|length| to_int(length, "an output length")).collect()
}

fn attribute(attr: miopenConvolutionAttrib_t) -> Result<usize, Failure> {
    let index = attr as usize;
    if index < ATTRIBUTES { Ok(index) } else { Err(bad_parm(format!("{attr} is no convolution attribute"))) }
}

/// The number of spatial dimensions that a caller's lists have, which must be the descriptor's.
fn spatial_dims(state: &State, found: c_int) -> Result<usize, Failure> {
    let dims = state.conv.spatial_dims();
    if usize::try_from(found) != Ok(dims) {
        return Err(bad_parm(format!("{found} spatial dimensions, the descriptor has {dims}")));
    }
    Ok(dims)
}

fn set_find_mode(
    conv: miopenConvolutionDescriptor_t,
    mode: miopenConvolutionFindMode_t,
) -> Result<(), Failure> {
    conv.with(|state| {
        if !matches!(mode, 1..=3 | 5..=7) {
            return Err(bad_parm(format!("{mode} is no find mode")));
        }
        state.find_mode = mode;
        Ok(())
    })
}

export! {
    fn miopenCreateConvolutionDescriptor(convDesc: Out<miopenConvolutionDescriptor_t>) {
        let out = convDesc.required("convDesc")?;
        let state = new(&[0, 0], &[1, 1], &[1, 1], 0)?;
        out.set(create(ConvolutionObject { state: Mutex::new(state) })?);
    }

    fn miopenInitConvolutionDescriptor(
        convDesc: miopenConvolutionDescriptor_t,
        c_mode: miopenConvolutionMode_t,
        pad_h: c_int,
        pad_w: c_int,
        stride_h: c_int,
        stride_w: c_int,
        dilation_h: c_int,
        dilation_w: c_int,
    ) {
        convDesc.with(|state| {
            *state = new(&[pad_h, pad_w], &[stride_h, stride_w], &[dilation_h, dilation_w], c_mode)?;
            Ok(())
        })?;
    }

    fn miopenInitConvolutionNdDescriptor(
        convDesc: miopenConvolutionDescriptor_t,
        spatialDim: c_int,
        padA: In<c_int>,
        strideA: In<c_int>,
        dilationA: In<c_int>,
        c_mode: miopenConvolutionMode_t,
    ) {
        convDesc.with(|state| {
            if !(2..=3).contains(&spatialDim) {
                return Err(bad_parm(format!("{spatialDim} spatial dimensions; accepted: 2 or 3")));
            }
            let list = |list: In<c_int>, name: &str| {
                list.list(spatialDim as usize).ok_or_else(|| bad_parm(format!("`{name}` is NULL")))
            };
            let (pads, strides) = (list(padA, "padA")?, list(strideA, "strideA")?);
            *state = new(&pads, &strides, &list(dilationA, "dilationA")?, c_mode)?;
            Ok(())
        })?;
    }

    fn miopenGetConvolutionSpatialDim(convDesc: miopenConvolutionDescriptor_t, spatialDim: Out<c_int>) {
        let dims = convDesc.state()?.conv.spatial_dims();
        spatialDim.required("spatialDim")?.set(dims as c_int);
    }

    fn miopenGetConvolutionDescriptor(
        convDesc: miopenConvolutionDescriptor_t,
        c_mode: Out<miopenConvolutionMode_t>,
        pad_h: Out<c_int>,
        pad_w: Out<c_int>,
        stride_h: Out<c_int>,
        stride_w: Out<c_int>,
        dilation_h: Out<c_int>,
        dilation_w: Out<c_int>,
    ) {
        let conv = convDesc.state()?.conv;
        if conv.spatial_dims() != 2 {
            return Err(Failure::new(
                Status::UnknownError,
                "the convolution is 3-D; miopenGetConvolutionNdDescriptor tells its numbers",
            ));
        }
        let pads = if pad_h.is_null() && pad_w.is_null() { &[0; 2] } else { symmetric_pads(&conv)? };
        let numbers = [pads, conv.strides(), conv.dilations()].concat();
        let numbers = ints(&numbers)?;
        c_mode.set(conv.mode() as miopenConvolutionMode_t);
        for (out, number) in [pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w].iter().zip(numbers) {
            out.set(number);
        }
    }

    fn miopenGetConvolutionNdDescriptor(
        convDesc: miopenConvolutionDescriptor_t,
        requestedSpatialDim: c_int,
        spatialDim: Out<c_int>,
        padA: Out<c_int>,
        strideA: Out<c_int>,
        dilationA: Out<c_int>,
        c_mode: Out<miopenConvolutionMode_t>,
    ) {
        let conv = convDesc.state()?.conv;
        let dims = conv.spatial_dims();
        let requested = to_size(requestedSpatialDim, "the number of spatial dimensions requested")?;
        if requested > dims {
            return Err(bad_parm(format!("{requested} spatial dimensions requested, there are {dims}")));
        }
        let pads = if padA.is_null() { Vec::new() } else { ints(&symmetric_pads(&conv)?[..requested])? };
        let (strides, dilations) = (ints(conv.strides())?, ints(conv.dilations())?);
        spatialDim.set(dims as c_int);
        padA.set_all(&pads);
        strideA.set_all(&strides[..requested]);
        dilationA.set_all(&dilations[..requested]);
        c_mode.set(conv.mode() as miopenConvolutionMode_t);
    }

    fn fuseplanSetConvolutionPadding(
        convDesc: miopenConvolutionDescriptor_t,
        spatialDim: c_int,
        padBeforeA: In<c_int>,
        padAfterA: In<c_int>,
    ) {
        convDesc.with(|state| {
            let dims = spatial_dims(state, spatialDim)?;
            let list = |list: In<c_int>, name: &str| {
                let list = list.list(dims).ok_or_else(|| bad_parm(format!("`{name}` is NULL")))?;
                sizes(&list, "convolution padding")
            };
            let (before, after) = (list(padBeforeA, "padBeforeA")?, list(padAfterA, "padAfterA")?);
            state.conv = state.conv.with_asymmetric_pads(before, after)?;
            Ok(())
        })?;
    }

    fn fuseplanGetConvolutionPadding(
        convDesc: miopenConvolutionDescriptor_t,
        spatialDim: c_int,
        padBeforeA: Out<c_int>,
        padAfterA: Out<c_int>,
    ) {
        let state = convDesc.state()?;
        spatial_dims(&state, spatialDim)?;
        let (before, after) = (ints(state.conv.pads_before())?, ints(state.conv.pads_after())?);
        padBeforeA.set_all(&before);
        padAfterA.set_all(&after);
    }

    fn miopenGetConvolutionGroupCount(convDesc: miopenConvolutionDescriptor_t, groupCount: Out<c_int>) {
        let groups = convDesc.state()?.groups;
        groupCount.required("groupCount")?.set(groups);
    }

    fn miopenSetConvolutionGroupCount(convDesc: miopenConvolutionDescriptor_t, groupCount: c_int) {
        convDesc.with(|state| {
            state.groups = groupCount;
            Ok(())
        })?;
    }

    fn miopenSetTransposeConvOutputPadding(
        convDesc: miopenConvolutionDescriptor_t,
        adj_h: c_int,
        adj_w: c_int,
    ) {
        convDesc.with(|state| {
            state.conv = state.conv.with_output_padding(&sizes(&[adj_h, adj_w], "output padding")?)?;
            Ok(())
        })?;
    }

    fn miopenSetTransposeConvNdOutputPadding(
        convDesc: miopenConvolutionDescriptor_t,
        spatialDim: c_int,
        adjA: In<c_int>,
    ) {
        convDesc.with(|state| {
            let dims = spatial_dims(state, spatialDim)?;
            let pads = adjA.list(dims).ok_or_else(|| bad_parm("`adjA` is NULL"))?;
            state.conv = state.conv.with_output_padding(&sizes(&pads, "output padding")?)?;
            Ok(())
        })?;
    }

    fn miopenGetConvolutionForwardOutputDim(
        convDesc: miopenConvolutionDescriptor_t,
        inputTensorDesc: miopenTensorDescriptor_t,
        filterDesc: miopenTensorDescriptor_t,
        n: Out<c_int>,
        c: Out<c_int>,
        h: Out<c_int>,
        w: Out<c_int>,
    ) {
        let lens = forward_output(convDesc, inputTensorDesc, filterDesc)?;
        if lens.len() != 4 {
            return Err(bad_parm(
                "the convolution is 3-D; miopenGetConvolutionNdForwardOutputDim tells its output",
            ));
        }
        let outs = [(n, "n"), (c, "c"), (h, "h"), (w, "w")];
        for (out, name) in outs {
            out.required(name)?;
        }
        for ((out, _), length) in outs.into_iter().zip(lens) {
            out.set(length);
        }
    }

    fn miopenGetConvolutionNdForwardOutputDim(
        convDesc: miopenConvolutionDescriptor_t,
        inputTensorDesc: miopenTensorDescriptor_t,
        filterDesc: miopenTensorDescriptor_t,
        nDim: Out<c_int>,
        outputTensorDimA: Out<c_int>,
    ) {
        let lens = forward_output(convDesc, inputTensorDesc, filterDesc)?;
        let (count, list) = (nDim.required("nDim")?, outputTensorDimA.required("outputTensorDimA")?);
        count.set(lens.len() as c_int);
        list.set_all(&lens);
    }

    fn miopenDestroyConvolutionDescriptor(convDesc: miopenConvolutionDescriptor_t) {
        if !convDesc.is_null() {
            convDesc.remove()?;
        }
    }

    fn miopenSetConvolutionAttribute(
        convDesc: miopenConvolutionDescriptor_t,
        attr: miopenConvolutionAttrib_t,
        value: c_int,
    ) {
        convDesc.with(|state| {
            state.attributes[attribute(attr)?] = value;
            Ok(())
        })?;
    }

    fn miopenGetConvolutionAttribute(
        convDesc: miopenConvolutionDescriptor_t,
        attr: miopenConvolutionAttrib_t,
        value: Out<c_int>,
    ) {
        let kept = convDesc.state()?.attributes[attribute(attr)?];
        value.required("value")?.set(kept);
    }

    fn miopenSetConvolutionFindMode(
        convDesc: miopenConvolutionDescriptor_t,
        findMode: miopenConvolutionFindMode_t,
    ) {
        set_find_mode(convDesc, findMode)?;
    }

    fn miopenGetConvolutionFindMode(
        convDesc: miopenConvolutionDescriptor_t,
        findMode: Out<miopenConvolutionFindMode_t>,
    ) {
        let mode = convDesc.state()?.find_mode;
        findMode.required("findMode")?.set(mode);
    }

    fn miopenHiddenSetConvolutionFindMode(convDesc: miopenConvolutionDescriptor_t, findMode: c_int) {
        set_find_mode(convDesc, findMode as miopenConvolutionFindMode_t)?;
    }

    fn miopenHiddenGetConvolutionFindMode(convDesc: miopenConvolutionDescriptor_t, findMode: Out<c_int>) {
        let mode = convDesc.state()?.find_mode;
        findMode.required("findMode")?.set(mode as c_int);
    }
}

fn ints(values: &[usize]) -> Result<Vec<c_int>, Failure> {
    values.iter().map(|&value| to_int(value, "a number of the convolution")).collect()
}
