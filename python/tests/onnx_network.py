"""Networks in ONNX files: every value by ONNX Runtime, and the nodes as the finder of chains takes them."""

from __future__ import annotations

from collections import Counter

import fuseplan
import numpy as np
import onnx
import onnxruntime


class Network:
    """A model, and what ONNX Runtime computes with it, node by node.

    `nodes` is what the finder of chains is given, and `values` has the array of each. `magnitudes` has, for each
    convolution by its node, the sums of the products' magnitudes. `operators` counts ONNX's own.
    """

    def __init__(self, model, inputs):
        graph = model.graph
        arrays, self._magnitudes = _compute(model, inputs)
        self.nodes, self.values, self.magnitudes = [], [], {}
        self.operators = Counter(node.op_type for node in graph.node)
        self._arrays, self._numbers = arrays, {}
        self._makers = {name: node for node in graph.node for name in node.output}
        self._readers = Counter(name for node in graph.node for name in node.input)
        self._results = {of.name for of in graph.output}
        self._constants = {of.name for of in graph.initializer}
        for node in graph.node:
            if all(name in self._constants for name in node.input):
                self._constants.update(node.output)
        meanings = {node.output[0]: self._meaning(node) for node in graph.node}
        inner = {name for *_, names in meanings.values() for name in names}
        for name in inputs:
            self._put(name, "other", [], {}, arrays[name])
        for name in self._constants:
            self._put(name, "constant", [], {}, arrays[name])
        for node in graph.node:
            kind, given, parameters, _ = meanings[node.output[0]]
            if node.output[0] in inner:
                # What replaces the idiom reads in its place.
                kind, given = "other", []
            for name in [name for name in node.output if name and name not in self._constants]:
                self._put(name, kind, given, parameters, arrays[name])

    def _put(self, name, kind, inputs, parameters, array):
        def number_of(given):
            return self._numbers[given] if isinstance(given, str) else self._put("", "constant", [], {}, given)

        numbers = [number_of(given) for given in inputs]
        number = len(self.nodes)
        is_tensor = array.dtype == np.float32 and 1 <= array.ndim <= 5 and array.size > 0
        value = fuseplan.TensorDescriptor(array.shape, "float32") if is_tensor else None
        self.nodes.append((name, kind, numbers, value, name in self._results, parameters))
        self.values.append(array)
        self._numbers[name] = number
        if kind == "conv":
            self.magnitudes[number] = self._magnitudes[name]
        return number

    def _meaning(self, node):
        """What a node is to the finder: its operation, the names of what it reads (arrays where these are constants
        that the file does not have as such), the operation's parameters, and the other values that it stands for."""
        for whole in (self._hard_swish, self._swish, self._scale_shift):
            if (found := whole(node)) is not None and all(self._is_inner(name) for name in found[-1]):
                return found
        inputs, attributes = list(node.input), {of.name: onnx.helper.get_attribute_value(of) for of in node.attribute}
        if node.op_type == "Conv":
            return "conv", inputs, self._convolution(node, attributes), []
        if node.op_type == "BatchNormalization":
            return "batch_norm", inputs, {"eps": attributes.get("epsilon", 1e-5)}, []
        if node.op_type in ("Add", "Sum", "Mul") and len(inputs) == 2:
            return "multiply" if node.op_type == "Mul" else "add", inputs, {}, []
        if node.op_type == "Relu":
            return "activation", inputs, {"mode": "relu"}, []
        if node.op_type == "HardSigmoid" and abs(attributes.get("alpha", 0.2) - 1 / 6) < 1e-6:
            return "activation", inputs, {"mode": "hardsigmoid"}, []
        return "other", [name for name in inputs if name], {}, []

    def _convolution(self, node, attributes):
        dims = self._arrays[node.input[1]].ndim - 2
        assert attributes.get("auto_pad", b"NOTSET") == b"NOTSET", "no network of the tests has another"
        pads = attributes.get("pads", [0, 0] * dims)
        return {
            "stride": list(attributes.get("strides", [1] * dims)),
            "padding": list(zip(pads[:dims], pads[dims:])),
            "dilation": list(attributes.get("dilations", [1] * dims)),
            "groups": attributes.get("group", 1),
        }

    def _hard_swish(self, node):
        """`x * clip(x + 3, 0, 6) / 6`"""
        is_sixth = node.op_type == "Div" and self._is_number(node.input[1], 6)
        product = self._maker(node.input[0], "Mul") if is_sixth else None
        if product is None:
            return None
        for x, gate in (product.input, product.input[::-1]):
            clip = self._maker(gate, "Clip")
            if clip is None or not (self._is_number(clip.input[1], 0) and self._is_number(clip.input[2], 6)):
                continue
            add = self._maker(clip.input[0], "Add")
            if add is not None and add.input[0] == x and self._is_number(add.input[1], 3):
                return "activation", [x], {"mode": "hardswish"}, [add.output[0], gate, product.output[0]]
        return None

    def _swish(self, node):
        """`x * sigmoid(x * 1)`, which is SiLU."""
        for x, gate in (node.input, node.input[::-1]) if node.op_type == "Mul" else ():
            sigmoid = self._maker(gate, "Sigmoid")
            product = self._maker(sigmoid.input[0], "Mul") if sigmoid is not None else None
            if product is not None and product.input[0] == x and self._is_number(product.input[1], 1):
                return "activation", [x], {"mode": "silu"}, [product.output[0], gate]
        return None

    def _scale_shift(self, node):
        """`x * scale + shift`, or `x * scale`, with one constant a channel or one for all: a batch-norm of mean 0 and
        variance 1."""
        if node.op_type == "Add":
            for product, shift in (node.input, node.input[::-1]):
                found = self._scale_shift(maker) if (maker := self._maker(product, "Mul")) is not None else None
                if found is not None and (vector := self._per_channel(shift, found[1][0])) is not None:
                    _, (x, scale, _, *rest), parameters, _ = found
                    return "batch_norm", [x, scale, vector, *rest], parameters, [product]
        if node.op_type == "Mul":
            for x, scale in (node.input, node.input[::-1]):
                if (vector := self._per_channel(scale, x)) is not None:
                    zeros = np.zeros_like(vector)
                    return "batch_norm", [x, vector, zeros, zeros, np.ones_like(vector)], {"eps": 0.0}, []
        return None

    def _per_channel(self, name, x):
        """A constant as one value for each channel of x, if that is how it is added to x, or multiplied with it."""
        array, image = self._arrays[name], self._arrays[x]
        if name not in self._constants or x in self._constants or image.ndim != 4 or array.ndim > 4:
            return None
        of_channels = np.shape(array.reshape([1] * (4 - array.ndim) + list(array.shape)))[1]
        if array.size != of_channels or of_channels not in (1, image.shape[1]):
            return None
        return np.ascontiguousarray(np.broadcast_to(array.reshape(-1), image.shape[1]))

    def _maker(self, name, op_type):
        node = self._makers.get(name)
        return node if node is not None and node.op_type == op_type else None

    def _is_number(self, name, number):
        array = self._arrays[name]
        return name in self._constants and array.size == 1 and array.item() == number

    def _is_inner(self, name):
        """Whether one node of the idiom is all that reads a value."""
        return self._readers[name] == 1 and name not in self._results


def _compute(model, inputs):
    """Every value of a model by name, and of each convolution the sums of the products' magnitudes, by ONNX Runtime
    with the operators as the file has them, none fused with others."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    graph = whole.graph
    computed = [name for node in graph.node for name in node.output if name]
    magnitudes = {node.output[0]: f"magnitudes of {node.output[0]}" for node in graph.node if node.op_type == "Conv"}
    for node in [node for node in graph.node if node.op_type == "Conv"]:
        names = [f"{name} of {node.output[0]}" for name in ("|x|", "|w|")]
        graph.node.extend(onnx.helper.make_node("Abs", [of], [name]) for of, name in zip(node.input, names))
        sums = onnx.NodeProto()
        sums.CopyFrom(node)
        sums.name, sums.input[:], sums.output[:] = names[0], names, [magnitudes[node.output[0]]]
        graph.node.append(sums)
    del graph.output[:]
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in [*computed, *magnitudes.values()])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(whole.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found = dict(zip((of.name for of in session.get_outputs()), session.run(None, inputs)))
    given = {of.name: onnx.numpy_helper.to_array(of) for of in graph.initializer}
    values = {**given, **inputs, **{name: found[name] for name in computed}}
    return values, {of: found[name] for of, name in magnitudes.items()}
