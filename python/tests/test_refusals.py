"""What is refused, where, and with which fields."""

import fuseplan
import numpy as np
import pytest

X = np.zeros((1, 8, 6, 6), np.float32)
W = np.zeros((4, 8, 3, 3), np.float32)


def refusal(call):
    with pytest.raises(fuseplan.UnsupportedError) as caught:
        call()
    error = caught.value
    return error.operator, error.index, error.property, error.found, error.accepted


def test_an_operator_is_refused_where_it_is_appended_and_leaves_the_plan():
    plan = fuseplan.Plan(X).conv(W)
    assert refusal(lambda: plan.conv(W)) == (
        "ConvForward",
        1,
        "order",
        "the plan already has a convolution",
        "a second plan that starts with it",
    )
    assert len(plan.operators) == 1 and list(plan.operands) == ["weight"]
    assert refusal(lambda: fuseplan.Plan(X).conv((4, 7, 3, 3))) == (
        "ConvForward",
        0,
        "shape",
        "weights have 7 input channels, the plan's tensor has 8",
        "weights with lengths [4, 8, 3, 3]",
    )
    assert refusal(lambda: fuseplan.Plan(X).conv(W.astype(np.float16)))[2:] == ("data type", "f16", "f32 weights")
    bias = np.zeros(8, np.float64)
    assert refusal(lambda: fuseplan.Plan(X).bias(bias))[2:] == ("data type", "f64", "f32 bias")


def test_an_output_without_an_address_is_refused_with_what_makes_it_smaller():
    operator, _, what, found, accepted = refusal(lambda: fuseplan.Plan(X).conv(W, padding=10**9))
    assert (operator, what) == ("ConvForward", "shape") and "overflow the address space" in found
    assert accepted == "padding, filters and output strides with which the output fits the address space"


def test_an_array_without_elements_is_named_with_its_shape():
    with pytest.raises(fuseplan.OperandError) as caught:
        fuseplan.Plan(X[:0])
    error = caught.value
    assert (error.operand, error.property) == ("the input", "shape")
    assert error.found.startswith("[0, 8, 6, 6]") and "tensor length 0 is zero" in error.found
    assert "Some" not in str(error)


def test_slopes_are_one_a_channel_or_one_for_all():
    plan = fuseplan.Plan(X)
    assert refusal(lambda: plan.prelu(dtype="float64"))[2:] == ("data type", "f64", "f32 slope")
    with pytest.raises(fuseplan.OperandError) as caught:
        plan.prelu(np.zeros(7, np.float32))
    error = caught.value
    assert (error.operand, error.property, error.found, error.accepted) == ("slope", "shape", "(7,)", "(1, 8, 1, 1) or (8,)")
    with pytest.raises(fuseplan.OperandError, match=r"slope: shape \(8,\); accepted: \(1, 1, 1, 1\) or \(1,\)"):
        plan.prelu(np.zeros(8, np.float32), shared=True)
    assert not plan.operators
    with pytest.raises(TypeError, match="slope is missing"):
        plan.prelu().compile()(X)


def test_what_no_solver_takes_is_refused_at_the_append_for_a_device_and_else_at_the_compile():
    x = X.astype(np.float64)
    handle = fuseplan.Handle("cpu")
    found = refusal(lambda: fuseplan.Plan(x, device=handle).activation("relu"))
    assert found[:3] == ("ActivationForward", 0, "data type") and found[3] == "f64"
    plan = fuseplan.Plan(x).activation("relu")
    assert refusal(lambda: plan.compile(handle))[2:4] == ("data type", "f64")


def test_a_refusal_reads_as_a_sentence_and_can_be_pickled():
    import pickle

    with pytest.raises(fuseplan.UnsupportedError, match=r"ConvForward \(operator 0\): .*; accepted: ") as caught:
        fuseplan.Plan(X).conv((4, 7, 3, 3))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.found) == (str(caught.value), caught.value.found)


@pytest.mark.parametrize(
    "call, property, found, accepted",
    [
        (lambda k: k(X.astype(np.float16), bias=np.zeros(4, np.float32)), "dtype", "float16", "float32"),
        (lambda k: k(X.astype(np.int32), bias=np.zeros(4, np.float32)), "dtype", "int32", "float32, float16, bfloat16, float64, int8"),
        (lambda k: k(X[:, :, :5], bias=np.zeros(4, np.float32)), "shape", "(1, 8, 5, 6)", "(1, 8, 6, 6)"),
        (lambda k: k(X[..., ::-1], bias=np.zeros(4, np.float32)), "strides", None, "strides that are not negative"),
        (lambda k: k(X.swapaxes(2, 3), bias=np.zeros(4, np.float32)), "strides", "(288, 36, 1, 6)", "(288, 36, 6, 1)"),
        (lambda k: k(X.astype(">f4"), bias=np.zeros(4, np.float32)), "dtype", ">f4", None),
        (lambda k: k(X, bias=np.zeros(5, np.float32)), "shape", "(5,)", "(1, 4, 1, 1) or (4,)"),
        (lambda k: k(X, bias=np.zeros(8, np.float32)[::2]), "strides", "(2,)", "(1,)"),
        (lambda k: k(np.broadcast_to(X[:, :1], X.shape), bias=np.zeros(4, np.float32)), "shape", None, None),
        (lambda k: k(X, bias=np.zeros(4, np.float32), out=np.zeros((1, 4, 4, 4), np.float64)), "dtype", "float64", "float32"),
    ],
)
def test_an_array_that_cannot_be_read_in_place_is_an_error(call, property, found, accepted):
    layer = fuseplan.Plan(X).conv(W).bias().compile(fuseplan.Handle("cpu"))
    with pytest.raises(fuseplan.OperandError) as caught:
        call(layer)
    error = caught.value
    assert isinstance(error, ValueError) and error.property == property
    assert found is None or error.found == found
    assert accepted is None or error.accepted == accepted


def test_memory_that_must_not_be_written_and_memory_that_overlaps():
    layer = fuseplan.Plan(X).conv((8, 8, 3, 3), padding=1).compile(fuseplan.Handle("cpu"))
    w = np.zeros((8, 8, 3, 3), np.float32)
    out = np.zeros_like(X)
    out.flags.writeable = False
    with pytest.raises(fuseplan.OperandError, match="out: memory read-only"):
        layer(X, weight=w, out=out)
    with pytest.raises(fuseplan.OperandError, match="memory shared with"):
        layer(X, weight=w, out=X)
    x = X.copy()
    x.flags.writeable = False
    assert layer(x, weight=w).shape == X.shape


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: fuseplan.Plan(X, dtype="float16"), TypeError, "for a shape"),
        (lambda: fuseplan.Plan((1, 8, 6)), ValueError, "3 dimensions"),
        (lambda: fuseplan.Plan((1, 8, 0, 6)), ValueError, "zero"),
        (lambda: fuseplan.Plan(object()), TypeError, "__dlpack__"),
        (lambda: fuseplan.Plan((1, 8, 6, 6), dtype="complex64"), ValueError, "dtype is complex64"),
        (lambda: fuseplan.Plan((1, 8, 6, 6), layout="NC"), ValueError, "NCHW, NHWC"),
        (lambda: fuseplan.Plan(X).conv(W, padding=-1), ValueError, "padding is -1"),
        (lambda: fuseplan.Plan(X).conv(W, padding="some"), ValueError, "padding is 'some'"),
        (lambda: fuseplan.Plan(X).conv(W, padding="same", stride=2), ValueError, "stride of 1"),
        (lambda: fuseplan.Plan(X).conv(W, stride=(1, 1, 1)), ValueError, "2 numbers"),
        (lambda: fuseplan.Plan(X).conv(W, groups=0), ValueError, "at least 1"),
        (lambda: fuseplan.Plan(X).conv(W, groups=-1), TypeError, "groups is -1; accepted: an integer that is not negative"),
        (lambda: fuseplan.Plan(X).conv(W, groups=1.5), TypeError, "groups is 1.5; accepted: an integer that is not negative"),
        (lambda: fuseplan.Plan(X).conv(W, output_strides=[-1, 1, 1, 1]), TypeError, r"output_strides is \[-1, .*; accepted: a sequence"),
        (lambda: fuseplan.Plan((1, 8, 6, 6), strides=[1, -1, 1, 1]), TypeError, r"strides is \[1, -1, .*; accepted: a sequence"),
        (lambda: fuseplan.TensorDescriptor((1, -8, 6, 6)), TypeError, r"shape is \(1, -8, 6, 6\); accepted: a sequence"),
        (lambda: fuseplan.Handle("cpu", threads=-1), TypeError, "threads is -1; accepted: an integer that is not negative"),
        (lambda: fuseplan.Plan(X).activation("swish"), ValueError, "accepted: identity"),
        (lambda: fuseplan.Plan(X).activation("relu", alpha=1), TypeError, "relu has no alpha; accepted: no parameters"),
        (lambda: fuseplan.Plan(X).activation("clamp", min=1), TypeError, "clamp needs max"),
        (lambda: fuseplan.Plan(X).bias(name="b").bias(name="b"), ValueError, "b is taken"),
        (lambda: fuseplan.Plan(X).compile(), fuseplan.Error, "no operators"),
        (lambda: fuseplan.Plan(X).bias().compile()(X), TypeError, "bias is missing"),
        (lambda: fuseplan.Plan(X).bias().compile()(X, bias=np.zeros(8, "f4"), b=0), TypeError, "no operand b"),
        (lambda: fuseplan.Plan(X).conv(W).compile()(X, weight=W), TypeError, "constant"),
        (lambda: fuseplan.Plan(X).conv(W).compile(solver="cpu.none"), fuseplan.Error, "no solver `cpu.none`"),
        (lambda: fuseplan.Handle("tpu"), fuseplan.DeviceError, "no backend `tpu`"),
        (lambda: fuseplan.Handle("cpu", threads=0), fuseplan.DeviceError, "thread"),
        (lambda: fuseplan.Handle(threads=2), TypeError, "threads"),
    ],
)
def test_a_wrong_argument_is_said(call, error, text):
    with pytest.raises(error, match=text):
        call()
