"""What the generators in this directory share: the files they write and the reference they store."""

import hashlib
import json
import math
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from PIL import Image
from safetensors.numpy import save_file

KEPT = 4096  # values kept of a layer's output, about


def sha256(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def check(path, expected):
    """Stops unless the file is the very one that the stored data were made from."""
    found = sha256(path)
    if found != expected:
        raise SystemExit(f"{path}: sha256 is {found}, expected {expected}")


def crop(photo, box, target):
    """Cuts `box` (left, top, right, bottom) out of a picture, pixel for pixel, and stores it."""
    with Image.open(photo) as picture:
        picture.convert("RGB").crop(box).save(target, optimize=True)


def read_input(path, bgr, offset, scale):
    """The picture as 1xCxHxW: `(pixel - offset) * scale`, in f32, as the example computes it."""
    pixels = np.asarray(Image.open(path), dtype=np.float32).transpose(2, 0, 1)[None]
    pixels = pixels[:, ::-1] if bgr else pixels
    return np.ascontiguousarray((pixels - np.float32(offset)) * np.float32(scale))


def run(model, feed, names):
    """The named tensors, computed by ONNX Runtime on the CPU, every node as it is written.

    Graph optimisations are off, so that nothing is folded into its neighbour.
    """
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return dict(zip(names, session.run(names, feed)))


def sample_step(shape):
    """A step that keeps about KEPT values in NCHW order, 1 for a small tensor.

    It has no factor in common with any extent; what is kept has values of every channel, row and column.
    """
    count = math.prod(shape)
    step = -(-count // KEPT)
    while math.gcd(step, count) != 1:
        step += 1
    kept = np.unravel_index(np.arange(0, count, step), shape)
    assert all(len(np.unique(places)) == extent for places, extent in zip(kept, shape))
    return step


def write(directory, network, weights, outputs, whole):
    """Stores network.json, weights.safetensors and expected.safetensors.

    Every plan's output is stored: the one named `whole` in full, others as every n-th value in NCHW
    order, with n in the node's `every`.
    """
    expected = {}
    for node in network["nodes"]:
        name = node["name"]
        if name in outputs:
            value = outputs[name]
            node["shape"] = list(value.shape)
            node["every"] = 1 if name == whole else sample_step(value.shape)
            expected[name] = np.ascontiguousarray(value.reshape(-1)[:: node["every"]])
    network["reference"] = f"ONNX Runtime {onnxruntime.__version__}, CPU, f32, graph optimisations off"
    nodes = ",\n".join("    " + json.dumps(node) for node in network.pop("nodes"))
    head = json.dumps(network, indent=2, ensure_ascii=False)[:-2]
    (directory / "network.json").write_text(f'{head},\n  "nodes": [\n{nodes}\n  ]\n}}\n')
    save_file(weights, directory / "weights.safetensors")
    save_file(expected, directory / "expected.safetensors")
    for path in sorted(directory.iterdir()):
        if path.suffix in (".safetensors", ".png", ".json"):
            print(f"{path.stat().st_size:>9} {sha256(path)}  {path.name}")
