"""Makes the networks of this folder: `python make.py`, with the package `onnx`.

`shapes.onnx` has a node of each operator whose lengths are inferred, and `onnx`'s own inference notes the lengths of every
value in it, which the tests compare with.
"""

import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).parent


def save(name, nodes, inputs, outputs, constants, opset=17):
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
        [numpy_helper.from_array(value, n) for n, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True), HERE / f"{name}.onnx")


def weights(*shape):
    return np.ones(shape, np.float32) / 8


def numbers(*list):
    return np.array(list, np.int64)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), name=outputs.split()[0], **attributes)


def residual():
    """A block as ResNet's: batch-norm, residual, ReLU; a pool, a flattened matrix product; two convolutions that are alike."""
    constants = {"w1": weights(8, 3, 3, 3), "w2": weights(8, 8, 3, 3), "w3": weights(8, 8, 1, 1), "fc": weights(8, 5)}
    constants |= {f"{p}{i}": weights(8) for p in ("scale", "bias", "mean", "var") for i in (1, 2)}
    constants["b3"] = weights(8)
    nodes = [
        node("Conv", "x w1", "c1", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c1 scale1 bias1 mean1 var1", "n1"),
        node("Relu", "n1", "r1"),
        node("Conv", "r1 w2", "c2", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c2 scale2 bias2 mean2 var2", "n2"),
        node("Add", "n2 r1", "s2"),
        node("Relu", "s2", "r2"),
        node("MaxPool", "r2", "p2", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p2 w3 b3", "c3"),
        node("Conv", "c3 w3 b3", "c4"),
        node("GlobalAveragePool", "c4", "g"),
        node("Flatten", "g", "f"),
        node("MatMul", "f fc", "y"),
    ]
    save("residual", nodes, {"x": ["N", 3, 16, 16]}, {"y": ["N", 5]}, constants)


def mobile():
    """Activations as exporters write them, TensorFlow's padding, a squeeze-and-excitation whose value is read twice."""
    constants = {"w1": weights(8, 3, 3, 3), "w2": weights(8, 1, 3, 3), "w3": weights(8, 8, 1, 1), "b": weights(8)}
    constants |= {n: np.array(v, np.float32) for n, v in dict(three=3, zero=0, six=6, half=0.5, one=1, root=2**0.5).items()}
    nodes = [
        node("Conv", "x w1 b", "c1", strides=[2, 2], auto_pad="SAME_UPPER"),
        # HardSwish.
        node("Add", "c1 three", "h1"),
        node("Clip", "h1 zero six", "h2"),
        node("Mul", "c1 h2", "h3"),
        node("Div", "h3 six", "h4"),
        node("Conv", "h4 w2", "c2", group=8, pads=[1, 1, 1, 1]),
        # SiLU.
        node("Sigmoid", "c2", "s1"),
        node("Mul", "c2 s1", "s2"),
        node("GlobalAveragePool", "s2", "g1"),
        node("Conv", "g1 w3 b", "c3"),
        node("HardSigmoid", "c3", "g2", alpha=0.2, beta=0.5),
        node("Mul", "s2 g2", "g3"),
        node("Conv", "g3 w3 b", "c4"),
        # Mish.
        node("Softplus", "c4", "m1"),
        node("Tanh", "m1", "m2"),
        node("Mul", "c4 m2", "m3"),
        node("Conv", "m3 w3 b", "c5"),
        # GELU.
        node("Div", "c5 root", "e1"),
        node("Erf", "e1", "e2"),
        node("Add", "e2 one", "e3"),
        node("Mul", "c5 e3", "e4"),
        node("Mul", "e4 half", "e5"),
        node("Conv", "e5 w3 b", "c6"),
        node("Clip", "c6 zero six", "y"),
    ]
    save("mobile", nodes, {"x": [1, 3, 15, 16]}, {"y": [1, 8, 8, 8]}, constants)


def lost():
    """A value whose lengths depend on the data, and what is behind it."""
    constants = {"w": weights(4, 3, 3, 3), "v": weights(4, 4, 1, 1)}
    nodes = [
        node("Conv", "x w", "c1"),
        node("Relu", "c1", "r1"),
        node("NonZero", "r1", "nz"),
        node("Cast", "nz", "cast", to=TensorProto.FLOAT),
        node("Unsqueeze", "cast axes", "un"),
        node("Conv", "un v", "y"),
    ]
    constants["axes"] = numbers(0, 3)
    save("lost", nodes, {"x": [1, 3, 8, 8]}, {"y": [1, 4, "n", 1]}, constants)


def shapes():
    """A node of each operator whose lengths are inferred, each behind what is needed for it."""
    f = np.float32
    constants = {
        "w": weights(8, 3, 3, 3), "w1d": weights(4, 6, 3), "w3d": weights(4, 2, 2, 3, 3), "wt": weights(3, 2, 4, 4),
        "c3": weights(3), "fc": weights(12, 5), "m": weights(4, 2, 10, 7), "slope": weights(3, 1, 1),
        "two": np.array(2, f), "k": numbers(4), "axis1": numbers(1), "axes": numbers(1, -1),
        "shape": numbers(0, -1, 10), "flat": numbers(-1), "target": numbers(2, 3, 10, 12), "times": numbers(1, 2, 1, 3),
        "starts": numbers(1, -2), "ends": numbers(9, -100), "along": numbers(2, 3), "steps": numbers(2, -1),
        "parts": numbers(1, 2), "pads": numbers(0, 0, 1, 2, 0, 0, 3, 4), "at": numbers(2, 0), "i0": numbers(0), "i2": numbers(2),
        "sizes": numbers(2, 3, 7, 9), "scales": np.array([1, 1, 2, 0.5], f), "h": numbers(1, 3, 5), "zero": np.array(0, np.int64),
        "lw": weights(2, 16, 12), "lr": weights(2, 16, 4), "five": np.array(5, np.int64), "one": np.array(1, np.int64),
    }  # fmt: skip
    nodes = [
        node("Conv", "x w", "conv", strides=[2, 1], pads=[1, 0, 2, 1], dilations=[1, 2]),
        node("Conv", "x w", "conv_upper", strides=[2, 2], auto_pad="SAME_UPPER"),
        node("Conv", "x w", "conv_lower", strides=[3, 2], auto_pad="SAME_LOWER"),
        node("Conv", "x w", "conv_valid", auto_pad="VALID"),
        node("Conv", "line w1d", "conv_1d", pads=[1, 1]),
        node("Conv", "film w3d", "conv_3d", pads=[1, 0, 0, 0, 1, 1], group=1),
        node("ConvTranspose", "x wt", "up", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("ConvTranspose", "x wt", "up_more", strides=[3, 2], output_padding=[1, 1], group=3),
        node("MaxPool", "x", "max_pool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, pads=[0, 1, 0, 1]),
        node("AveragePool", "x", "average_pool", kernel_shape=[2, 3], strides=[2, 3], ceil_mode=1),
        node("GlobalAveragePool", "x", "global"),
        node("LRN", "x", "lrn", size=3),
        node("BatchNormalization", "x c3 c3 c3 c3", "norm"),
        node("PRelu", "x slope", "prelu"),
        node("Add", "x c_1", "add"),
        node("Pow", "x two", "pow"),
        node("Where", "less x two", "where"),
        node("Less", "x two", "less_late"),
        node("Sum", "x x two", "sum"),
        node("Softmax", "x", "softmax"),
        node("Concat", "x x", "concat", axis=1),
        node("Reshape", "x shape", "reshape"),
        node("Reshape", "x flat", "flattened"),
        node("Flatten", "x", "flatten", axis=2),
        node("Transpose", "x", "transpose", perm=[0, 2, 3, 1]),
        node("Unsqueeze", "line axes", "unsqueeze"),
        node("Squeeze", "global", "squeeze_all"),
        node("Squeeze", "global along", "squeeze"),
        node("Expand", "global target", "expand"),
        node("Tile", "x times", "tile"),
        node("Slice", "x starts ends along steps", "slice"),
        node("Split", "x parts", "split_a split_b", axis=1),
        node("Split", "x", "half_a half_b", axis=3),
        node("Pad", "x pads", "pad"),
        node("Gather", "x at", "gather", axis=2),
        node("Resize", "x nothing scales", "resize_scales"),
        node("Resize", "x nothing nothing sizes", "resize_sizes"),
        node("DepthToSpace", "deep", "to_space", blocksize=2),
        node("SpaceToDepth", "x", "to_depth", blocksize=2),
        node("ReduceMean", "x", "mean", axes=[2, 3], keepdims=0),
        node("ReduceSum", "x axis1", "reduce_sum"),
        node("ArgMax", "x", "arg_max", axis=1, keepdims=0),
        node("TopK", "x k", "top top_at", axis=3),
        node("Gemm", "global_flat fc_t", "gemm", transB=1),
        node("MatMul", "x m_t", "mat_mul"),
        node("MatMul", "x v12", "mat_vec"),
        node("LSTM", "steps_in lw lr", "lstm lstm_h lstm_c", hidden_size=4, direction="bidirectional"),
        node("QuantizeLinear", "x two zp", "quantized"),
        node("DequantizeLinear", "quantized two zp", "dequantized"),
        node("ConstantOfShape", "target", "filled"),
        node("Range", "zero five one", "range"),
        # What exporters do with shapes.
        node("Shape", "x", "dims"),
        node("Gather", "dims i0", "n"),
        node("Gather", "dims i2", "height"),
        node("Mul", "height two_i", "doubled"),
        node("Cast", "doubled", "doubled_f", to=TensorProto.FLOAT),
        node("Floor", "doubled_f", "floored"),
        node("Cast", "floored", "doubled_again", to=TensorProto.INT64),
        node("Concat", "n three doubled_again flat", "new_shape", axis=0),
        node("Reshape", "x new_shape", "by_shape"),
        node("Slice", "dims first last", "image_dims"),
        node("Concat", "n h_of image_dims", "target_2", axis=0),
        node("Resize", "x nothing nothing target_2", "resize_by_shape"),
        node("Reshape", "c3 h_1", "c_of"),
        node("Conv", "x w_of", "conv_of_constant"),
    ]
    constants |= {
        "c_1": weights(3, 1, 1), "fc_t": weights(5, 3), "m_t": weights(12, 7), "v12": weights(12), "h_of": numbers(3),
        "three": numbers(3), "two_i": numbers(2), "first": numbers(2), "last": numbers(100), "h_1": numbers(1, 3, 1, 1),
        "zp": np.array(3, np.uint8), "w_flat": weights(54), "w_dims": numbers(2, 3, 3, 3),
    }  # fmt: skip
    early = [
        node("Less", "x two", "less"),
        node("Identity", "x", "same"),
        node("Flatten", "pooled_1", "global_flat"),
        node("Reshape", "w_flat w_dims", "w_of"),
        node("Concat", "x x x x", "deep", axis=1),
    ]
    pooled = [node("GlobalMaxPool", "x", "pooled_1")]
    # An input that is left out has no name.
    for each in nodes:
        each.input[:] = ["" if name == "nothing" else name for name in each.input]
    inputs = {"x": [2, 3, 10, 12], "line": [2, 6, 9], "film": [1, 2, 4, 8, 8], "steps_in": [5, 2, 12]}
    save("shapes", pooled + early + nodes, inputs, {"conv_of_constant": [2, 2, 8, 10]}, constants)


for make in (residual, mobile, lost, shapes):
    make()
