"""Makes this directory's data: PP-OCR's text direction classifier and what ONNX Runtime computes.

Needs  Python 3.11  pip install numpy==2.4.6 onnx==1.23.2 onnxruntime==1.31.1 pillow==13.0.0 safetensors==0.8.0
and two packages that are only unpacked, never imported:
    pip download --no-deps rapidocr-onnxruntime==1.4.4 scikit-image==0.26.0
    for wheel in *.whl; do unzip -q -d packages $wheel; done
Run    python make.py packages
"""

import sys
from pathlib import Path

import onnx
from onnx import numpy_helper

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
import layers  # noqa: E402

MODEL = "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"
MODEL_SHA256 = "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c"
PHOTO = "skimage/data/astronaut.png"
PHOTO_SHA256 = "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5"
BADGES = (134, 338, 326, 386)  # 48 x 192, the extent that the model is made for
LAST = "conv_last"


class Graph:
    """An ONNX graph with its constants and with the readers of every tensor."""

    def __init__(self, graph):
        self.constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        self.readers = {}
        self.nodes = []
        for node in graph.node:
            if node.op_type == "Constant":
                self.constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
                continue
            self.nodes.append(node)
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def next(self, tensor, op_type):
        """The only reader of a tensor, if it is of this type."""
        readers = self.readers.get(tensor, [])
        return readers[0] if len(readers) == 1 and readers[0].op_type == op_type else None


def attributes(node):
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def plan(graph, conv, names, stored):
    """A convolution with every node behind it that the same fusion plan computes, and its output's name."""
    weights = conv.input[1]
    name = weights.removesuffix("_weights")
    shape = attributes(conv)
    assert shape["dilations"] == [1, 1] and shape["pads"][:2] == shape["pads"][2:]
    node = {"name": name, "op": "plan", "input": names[conv.input[0]]}
    node |= {"pads": shape["pads"][:2], "strides": shape["strides"], "groups": shape["group"]}
    stored[f"{name}.weights"] = graph.constants[weights]
    tensor = conv.output[0]
    if norm := graph.next(tensor, "BatchNormalization"):
        node["epsilon"] = attributes(norm)["epsilon"]
        for part, operand in zip(("scale", "shift", "mean", "variance"), norm.input[1:], strict=True):
            stored[f"{name}.{part}"] = graph.constants[operand]
        tensor = norm.output[0]
    if add := graph.next(tensor, "Add"):
        other = next(i for i in add.input if i != tensor)
        if other in names:
            node["residual"] = names[other]
            tensor = add.output[0]
        elif reshape := next((n for n in graph.nodes if other in n.output), None):
            node["bias"] = True
            stored[f"{name}.bias"] = graph.constants[reshape.input[0]]
            tensor = add.output[0]
    if relu := graph.next(tensor, "Relu"):
        node["activation"] = {"mode": "RELU"}
        tensor = relu.output[0]
    return node, tensor


def hard_swish(graph, tensor):
    """The output of `x * clip(x + 3, 0, 6) / 6`, if that is what reads the tensor."""
    readers = {n.op_type: n for n in graph.readers.get(tensor, [])}
    if set(readers) != {"Add", "Mul"}:
        return None
    add, product = readers["Add"], readers["Mul"]
    clip = graph.next(add.output[0], "Clip")
    if clip is None or clip.output[0] not in product.input:
        return None
    divide = graph.next(product.output[0], "Div")
    numbers = [graph.constants[n.input[i]] for n, i in ((add, 1), (clip, 1), (clip, 2), (divide, 1))]
    assert [float(n) for n in numbers] == [3, 0, 6, 6]
    return divide.output[0]


def translate(graph, image):
    """The network's nodes, its weights, and the ONNX name of every plan's output."""
    names, nodes, stored, outputs = {image: "image"}, [], {}, {}
    gates = {}
    for node in graph.nodes:
        known = [names.get(i) for i in node.input]
        if node.op_type == "Conv":
            entry, tensor = plan(graph, node, names, stored)
            outputs[entry["name"]] = tensor
            nodes.append(entry)
            names[tensor] = entry["name"]
            if entry["name"] == LAST:
                return nodes, stored, outputs
            if swish := hard_swish(graph, tensor):
                name = f"{entry['name']}.swish"
                nodes.append({"name": name, "op": "hard_swish", "input": entry["name"]})
                names[swish] = name
        elif node.op_type == "GlobalAveragePool":
            name = f"{known[0]}.mean"
            nodes.append({"name": name, "op": "mean", "input": known[0]})
            names[node.output[0]] = name
        elif node.op_type == "HardSigmoid":
            numbers = attributes(node)
            assert round(numbers["alpha"], 6) == 0.2 and numbers["beta"] == 0.5
            gates[node.output[0]] = known[0]
        elif node.op_type == "Mul" and node.input[1] in gates:
            name = f"{known[0]}.gated"
            nodes.append({"name": name, "op": "gate", "input": known[0], "gate": gates[node.input[1]]})
            names[node.output[0]] = name
    raise SystemExit(f"{LAST} is not in the graph")


def main(packages):
    layers.check(packages / MODEL, MODEL_SHA256)
    layers.check(packages / PHOTO, PHOTO_SHA256)
    layers.crop(packages / PHOTO, BADGES, HERE / "photo.png")
    image = layers.read_input(HERE / "photo.png", bgr=True, offset=127.5, scale=1 / 127.5)

    model = onnx.load(packages / MODEL)
    feed = model.graph.input[0].name
    nodes, stored, outputs = translate(Graph(model.graph), feed)
    computed = layers.run(model, {feed: image}, list(outputs.values()))
    network = {
        "title": "PP-OCR text direction classifier: convolution + batch-norm + residual + ReLU",
        "image": {"file": "photo.png", "bgr": True, "offset": 127.5, "scale": 1 / 127.5},
        "nodes": nodes,
    }
    layers.write(HERE, network, stored, {n: computed[t] for n, t in outputs.items()}, whole=LAST)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
