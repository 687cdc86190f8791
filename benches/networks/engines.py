"""Inference engines beside PyTorch, on CPUs: each is given the network by PyTorch's exporter, in f32."""

import copy
import io

import torch


def onnxruntime(model, x):
    """ONNX Runtime with all of its optimisations, and with as many threads as PyTorch has."""
    import onnxruntime

    file = io.BytesIO()
    torch.onnx.export(model, (x,), file, dynamo=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    results = []

    def bind(bound, name, tensor):
        bound(name, "cpu", 0, tensor.numpy().dtype, tuple(tensor.shape), tensor.data_ptr())

    bind(binding.bind_input, session.get_inputs()[0].name, x)
    for output, like in zip(session.get_outputs(), _leaves(model(x)), strict=True):
        results.append(torch.empty_like(like, memory_format=torch.contiguous_format))
        bind(binding.bind_output, output.name, results[-1])

    def call(_):
        session.run_with_iobinding(binding)
        return results

    return call


def openvino(model, x):
    """OpenVINO for one call after the other, with as many threads as PyTorch has.

    Products are in f32, or in bf16 where the network is: such a network and its input are given in f32, with the precision as a hint.
    """
    import openvino

    options = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "PERFORMANCE_HINT": "LATENCY",
               "INFERENCE_PRECISION_HINT": {torch.float32: "f32", torch.bfloat16: "bf16"}[x.dtype]}
    model, x = copy.deepcopy(model).float(), x.float()
    converted = openvino.convert_model(model, example_input=x, input=[tuple(x.shape)])
    request = openvino.Core().compile_model(converted, "CPU", options).create_infer_request()
    # The request reads the array and does not keep it.
    array = x.numpy()
    request.set_input_tensor(openvino.Tensor(array, shared_memory=True))

    def call(_, _array=array):
        request.infer()
        return [torch.from_numpy(request.get_output_tensor(i).data) for i in range(len(request.model_outputs))]

    return call


def _leaves(result):
    return torch.utils._pytree.tree_leaves(result)
