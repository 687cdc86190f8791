#!/usr/bin/env python3
"""Convolutions by ONNX Runtime's ROCm provider, whose MIOpen is fuseplan's, against ONNX Runtime's CPU provider.

Every kind of graph that reaches MIOpen's convolutions, fusion plans or batch-norm, in f32 and f16. What cannot be
computed without a GPU is listed with its reason, and must fail for just that reason; anything else must agree.
"""

import collections
import contextlib
import itertools
import os
import sys
import tempfile

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

ROCM, CPU = "ROCMExecutionProvider", "CPUExecutionProvider"
TYPES = {"f32": (np.float32, TensorProto.FLOAT), "f16": (np.float16, TensorProto.FLOAT16)}
# Largest difference over the largest magnitude.
TOLERANCE = {"f32": 1e-5, "f16": 4e-3}

# Name: images, channels, spatial extents, filters, extents of a filter, attributes.
GEOMETRIES = {
    "3x3": (1, 3, (16, 16), 8, (3, 3), {"pads": [1, 1, 1, 1]}),
    "3x3-stride": (2, 8, (15, 15), 12, (3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "1x1": (1, 8, (9, 9), 8, (1, 1), {}),
    "groups": (2, 8, (14, 14), 8, (3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    "depthwise": (2, 6, (14, 11), 6, (3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
    "dilation": (1, 4, (20, 20), 6, (5, 5), {"dilations": [2, 2]}),
    "3x5": (3, 5, (9, 17), 7, (3, 5), {"strides": [1, 2], "pads": [1, 2, 1, 2]}),
    "one-sided": (1, 6, (12, 12), 4, (3, 3), {"pads": [0, 1, 1, 2]}),
    "1d": (2, 4, (31,), 5, (3,), {"pads": [1, 1]}),
    "3d": (1, 3, (6, 7, 8), 4, (3, 3, 3), {"pads": [1, 1, 1, 1, 1, 1]}),
}
CHAINS = ["conv", "conv-no-bias", "conv-relu", "fused", "fused-no-bias", "fused-residual", "transpose", "batch-norm"]

def impossible(chain, geometry, name):
    """Why a case cannot pass, and what must then be said; nothing for the others."""
    if chain == "transpose":
        return "fuseplan does not implement transposed convolutions", "miopenStatusNotImplemented"
    if chain == "batch-norm":
        converts = "the provider converts f16 parameters by a device kernel of its own", "OP_Cast"
        return converts if name == "f16" else None
    if chain == "fused-residual" and geometry == "one-sided":
        shape = "the provider pads both sides, and gives the residual the shape of what it then cuts out"
        return shape, "the bias has lengths"
    if chain == "fused-residual" and geometry == "1d":
        return "the provider gives the residual three dimensions, and the input four", "the bias has lengths"
    if geometry == "one-sided":
        return "the provider pads both sides, and cuts the result by a device kernel of its own", "_SliceKernel"
    return None


def model(chain, geometry, code, weights, bias, output):
    """The chain as a serialised model with inputs x and, where there is a residual, z."""
    images, channels, spatial, _, _, attributes = GEOMETRIES[geometry]
    shape = (images, channels, *spatial)
    values = {"w": weights} if "no-bias" in chain else {"w": weights, "b": bias}
    inputs = [helper.make_tensor_value_info("x", code, shape)]
    if chain == "batch-norm":
        dtype = weights.dtype
        values = {name: np.linspace(*ends, channels, dtype=dtype)
                  for name, ends in {"s": (0.5, 1.5), "b": (-1, 1), "m": (-0.5, 0.5), "v": (0.3, 2)}.items()}
        nodes = [helper.make_node("BatchNormalization", ["x", *values], ["y"])]
    elif chain.startswith("fused"):
        operands = ["x", *values]
        if chain == "fused-residual":
            inputs.append(helper.make_tensor_value_info("z", code, output))
            operands.append("z")
        nodes = [helper.make_node("FusedConv", operands, ["y"], domain="com.microsoft", activation="Relu",
                                  **attributes)]
    elif chain == "conv-relu":
        nodes = [helper.make_node("Conv", ["x", *values], ["c"], **attributes),
                 helper.make_node("Relu", ["c"], ["y"])]
    else:
        kind = "ConvTranspose" if chain == "transpose" else "Conv"
        nodes = [helper.make_node(kind, ["x", *values], ["y"], **attributes)]
    constants = [numpy_helper.from_array(value, name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "graph", inputs, [helper.make_tensor_value_info("y", code, None)], constants)
    sets = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=8).SerializeToString()


def run(text, feeds, provider):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if provider == ROCM:
        # What the provider does not take must not be computed by another.
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return ort.InferenceSession(text, options, providers=[provider]).run(None, feeds)[0]


@contextlib.contextmanager
def stderr_into(lines):
    """Whatever the process writes to stderr, C libraries included."""
    with tempfile.TemporaryFile() as file:
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            lines.append(file.read().decode(errors="replace"))


def outcome(chain, geometry, name):
    """Nothing if the providers agree, else what was said."""
    dtype, code = TYPES[name]
    images, channels, spatial, filters, extents, attributes = GEOMETRIES[geometry]
    draw = np.random.default_rng(sum(map(ord, chain + geometry)))
    normal = lambda *shape: draw.standard_normal(shape).astype(dtype)
    x, bias = normal(images, channels, *spatial), normal(filters)
    group = attributes.get("group", 1)
    shape = (channels, filters // group) if chain == "transpose" else (filters, channels // group)
    weights = (normal(*shape, *extents) / np.sqrt(np.prod(extents))).astype(dtype)

    # The reference computes in f32, f16 data too, chains without their residual.
    wide = lambda array: array.astype(np.float32)
    plain = {"conv-relu": "conv", "fused": "conv", "fused-residual": "conv", "fused-no-bias": "conv-no-bias"}
    text = model(plain.get(chain, chain), geometry, TensorProto.FLOAT, wide(weights), wide(bias), None)
    want = run(text, {"x": wide(x)}, CPU)
    feeds = {"x": x}
    if chain == "fused-residual":
        feeds["z"] = normal(*want.shape)
        want = want + wide(feeds["z"])
    if "fused" in chain or "relu" in chain:
        want = np.maximum(want, 0)

    said = []
    try:
        with stderr_into(said):
            found = run(model(chain, geometry, code, weights, bias, want.shape), feeds, ROCM)
    except Exception as error:  # ONNX Runtime's errors have no common class.
        return f"{said[0]}{error}"
    if found.shape != want.shape or found.dtype != dtype:
        return f"{found.dtype} {found.shape}, want {dtype} {want.shape}"
    error = np.abs(wide(found) - want).max() / np.abs(want).max()
    return "" if error < TOLERANCE[name] else f"off by {error:.1e} of the largest magnitude"


def libraries():
    """The files of the MIOpens that this process has loaded."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return {line.split()[-1] for line in maps if "MIOpen" in line.split()[-1]}


def main():
    ort.set_default_logger_severity(4)
    passed = wrong = 0
    reasons = collections.Counter()
    for chain, geometry, name in itertools.product(CHAINS, GEOMETRIES, TYPES):
        said = outcome(chain, geometry, name)
        reason, sign = impossible(chain, geometry, name) or (None, "")
        if reason is None and not said:
            passed += 1
        elif reason is not None and sign in said:
            reasons[reason] += 1
        else:
            wrong += 1
            print(f"WRONG {chain} {geometry} {name}: {said or 'passed, and is listed as impossible: ' + reason}")
    loaded = libraries()
    print(f"onnxruntime {ort.__version__} on {', '.join(sorted(loaded))}: {passed} agree with the CPU provider, "
          f"{wrong} are wrong, {reasons.total()} cannot be computed:")
    for reason, count in reasons.items():
        print(f"  {count}: {reason}")
    if [os.path.realpath(os.environ["FUSEPLAN_LIBRARY"])] != [os.path.realpath(path) for path in loaded]:
        sys.exit("the MIOpen that was loaded is another")
    sys.exit(1 if wrong or not passed else 0)


if __name__ == "__main__":
    main()
