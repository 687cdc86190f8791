"""ONNX Runtime side of the CPU comparison; the protocol is that of onednn_server.cpp.

Takes the number of threads as its argument. NCHW and f32 only; weights are prepacked when the session is made.
"""

import sys
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


class Side:
    """One model in one session."""

    def __init__(self, threads):
        self.threads = threads

    def setup(self, keys):
        if keys["dtype"] != "f32" or keys["layout"] != "nchw" or keys["weights"] != "packed":
            raise ValueError("only f32, nchw, packed weights")
        number = {key: int(keys[key]) for key in
                  ("n", "c", "h", "w", "k", "kernel", "stride", "pad", "dilation", "groups")}
        n, c, h, w, k, kernel, stride, pad, dilation, groups = number.values()

        def read(name, *shape):
            return np.fromfile(f"{keys['data']}/{name}", dtype=np.float32).reshape(shape)

        if keys["op"] == "conv":
            reach = dilation * (kernel - 1) + 1
            shape = [n, k, (h + 2 * pad - reach) // stride + 1, (w + 2 * pad - reach) // stride + 1]
            constants = {"w": read("w", k, c // groups, kernel, kernel), "b": read("b", k)}
            first = helper.make_node("Conv", ["x", "w", "b"], ["t"], kernel_shape=[kernel] * 2, group=groups,
                                     strides=[stride] * 2, pads=[pad] * 4, dilations=[dilation] * 2)
        else:
            shape = [n, c, h, w]
            constants = {name: read(name, c) for name in ("scale", "shift", "mean", "variance")}
            first = helper.make_node("BatchNormalization", ["x", *constants], ["t"], epsilon=1e-5)
        graph = helper.make_graph(
            [first, helper.make_node("Relu", ["t"], ["y"])], "plan",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [n, c, h, w])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
            [numpy_helper.from_array(value, name) for name, value in constants.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                                    providers=["CPUExecutionProvider"])
        self.input = onnxruntime.OrtValue.ortvalue_from_numpy(read("x", n, c, h, w))
        self.result = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32))
        self.binding = self.session.io_binding()
        self.binding.bind_ortvalue_input("x", self.input)
        self.binding.bind_ortvalue_output("y", self.result)
        return "ready " + " ".join(node.op_type for node in graph.node)

    def run(self, seconds):
        self.session.run_with_iobinding(self.binding)
        count, start = 0, time.perf_counter()
        while True:
            self.session.run_with_iobinding(self.binding)
            count += 1
            elapsed = time.perf_counter() - start
            if elapsed >= seconds:
                return f"time {elapsed / count} {count}"

    def output(self, file):
        self.result.numpy().tofile(file)
        return "done"


def main():
    side = Side(int(sys.argv[1]))
    for line in sys.stdin:
        command, *words = line.split()
        try:
            if command == "setup":
                answer = side.setup(dict(word.split("=", 1) for word in words))
            elif command == "run":
                answer = side.run(float(words[0]))
            elif command == "output":
                answer = side.output(words[0])
            else:
                raise ValueError(f"unknown command {command}")
        except Exception as error:  # every failure is an answer, so that the comparison goes on without this side
            answer = "error " + " ".join(str(error).split())
        print(answer, flush=True)


main()
