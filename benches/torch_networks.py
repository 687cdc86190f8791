#!/usr/bin/env python3
"""Times whole networks in PyTorch: eager, compiled by Inductor, and with fuseplan's plans.

    benches/torch_networks.py --warm --types f16-nhwc --batches 8      fills the disk's caches, by several processes
    benches/torch_networks.py --types f16-nhwc --batches 8 --output result
    benches/torch_networks.py --networks resnet18 --types f32-nchw --batches 1 --rounds 5

Needs PyTorch, torchvision and the package, by installation or on PYTHONPATH. With a GPU every side is captured into a CUDA
graph, without one it is called. Sides run in turns, and medians over the rounds count. Results are compared with those of the
same weights in f32 without TF32; a wrong one of ours is reported by the exit code. With `--apart` every side has a process of its
own and takes turns of a second, and the least time of a call counts, which threads and memory of other sides do not lengthen.
"""

import argparse
import concurrent.futures
import gc
import os
import pathlib
import platform
import subprocess
import sys
import time

import torch
from torch.utils import _pytree as pytree

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "layers"))
from networks import apart, chart, configurations, report, sides, timing  # noqa: E402

DEFAULT_NETWORKS = ("resnet50,resnext50,regnety400mf,mobilenetv2,mobilenetv3,efficientnetb0,vgg16,densenet121,"
                    "detector,unet,imagevae,videovae")
DEFAULT_TYPES = "f16-nhwc,bf16-nhwc,f16-nchw,f32-nchw,tf32-nchw"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def option(name, of, default, text, convert=str):
        def names(value):
            found = [convert(one) for one in value.split(",") if one]
            if of is not None and (unknown := [one for one in found if one not in of]):
                raise argparse.ArgumentTypeError(f"{', '.join(unknown)}; accepted: {', '.join(of)}")
            return found

        parser.add_argument(name, type=names, default=default, metavar="LIST", help=f"{text}; default: {default or 'none'}")

    types = [f"{name}-{layout}" for name in configurations.DTYPES for layout in configurations.LAYOUTS]
    option("--networks", configurations.NETWORKS, DEFAULT_NETWORKS, f"of {', '.join(configurations.NETWORKS)}")
    option("--types", types, DEFAULT_TYPES, "data type and layout of input and weights")
    option("--batches", None, "1,8,64", "autoencoders are given 1", int)
    option("--peers", sides.PEERS, "eager,channels-last,compile", f"of {', '.join(sides.PEERS)}")
    option("--ours", sides.OURS, "measure,all",
           "fuseplan.torch.optimize that chooses by measuring, or all; or torch.compile with the backend fuseplan")
    parser.add_argument("--rounds", type=int, default=15, help="0: compile and call once, time nothing")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, help="of every side on a CPU")
    parser.add_argument("--output", type=pathlib.Path, help="writes OUTPUT.md, OUTPUT.json and charts after each configuration")
    parser.add_argument("--apart", action="store_true", help="every side in a process of its own; least times count")
    # What a process of `--apart` is given: it is one side of one configuration.
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--warm", action="store_true", help="only compile, in several processes at once")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 1) // 2), help="of --warm")
    parser.add_argument("--time-limit", type=float, default=float("inf"), metavar="SECONDS",
                        help="begins no configuration behind it")
    return parser.parse_args()


def first_line(error):
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def expected(configuration, device):
    """The results of the same weights and input in f32."""
    configurations.set_tf32(False)
    model, x = sides.arranged(configuration.model(device).float(), configuration.input(device).float(), "nchw")
    # A few images at a time, as PyTorch takes minutes for a convolution in f32 of tensors of 2^31 elements.
    parts = [pytree.tree_leaves(model(part)) for part in x.split(8)]
    return [torch.cat(of_parts) for of_parts in zip(*parts, strict=True)]


def error(result, truth):
    """The largest error of any result, relative to that result's largest value."""
    found = pytree.tree_leaves(result)
    each = [((y.float() - of).abs().max() / of.abs().max()).item() for y, of in zip(found, truth, strict=True)]
    # A result that is no number has to be seen, which `max` alone does not care for.
    return max(each) if all(one == one for one in each) else float("nan")


def prepared(configuration, make, device, pool):
    configuration.set_math()
    begin = time.perf_counter()
    program = make(configuration.model(device), configuration.input(device), configuration.layout)
    return timing.Timed(program, pool), time.perf_counter() - begin


def measure(configuration, options):
    """The row of a configuration, timed."""
    if options.apart:
        return apart.measure(row_of(configuration), commands(configuration, options), options.rounds)
    row, ready = prepare(configuration, options)
    if ready:
        configuration.set_math()
        row["ms"] = timing.medians(ready, options.rounds)
    return row


def commands(configuration, options):
    """A command for each side, of this configuration alone."""
    of = {**{f"ours-{name}": [name, ""] for name in options.ours}, **{name: ["", name] for name in options.peers}}
    common = [sys.executable, __file__, "--serve", "--networks", configuration.network,
              "--types", f"{configuration.type}-{configuration.layout}", "--batches", str(configuration.batch),
              "--device", options.device, "--rounds", str(options.rounds)]
    common += ["--threads", str(options.threads)] if options.threads else []
    return {name: [*common, "--ours", ours, "--peers", peers] for name, (ours, peers) in of.items()}


def row_of(configuration):
    """The row of a configuration of which nothing is known."""
    return {"name": str(configuration), "network": configuration.network, "type": configuration.type,
            "layout": configuration.layout, "batch": configuration.batch,
            "ms": {}, "errors": {}, "plans": {}, "prepared_s": {}, "failed": {}}


def prepare(configuration, options):
    """The row of a configuration without times, and its sides, ready to be timed. A side that fails is left out, with the reason."""
    row = row_of(configuration)
    # What a side has compiled is used until the last round, so nothing is let go between the sides.
    torch._dynamo.reset()
    pool = torch.cuda.graph_pool_handle() if options.device.startswith("cuda") else None
    truth = expected(configuration, options.device) if options.rounds else None
    ready = {}
    for name in [*(f"ours-{name}" for name in options.ours), *options.peers]:
        try:
            ready[name], row["prepared_s"][name] = prepared(configuration, sides.SIDES[name], options.device, pool)
            if truth is None:
                del ready[name]
                continue
            row["errors"][name] = error(ready[name].result, truth)
            of = ready[name].program.reports
            if of:
                plans = sum(len(one.fused) for one in of)
                row["plans"][name] = f"{plans} of {plans + sum(len(one.unfused) for one in of)}"
        except Exception as failure:  # noqa: BLE001
            ready.pop(name, None)
            row["failed"][name] = first_line(failure)
        clean(options.device)
    return row, ready


def clean(device):
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def warm(options):
    """Compiles everything, each network and type in a process of its own."""
    end = time.monotonic() + options.time_limit
    # Every process compiles with threads or processes of its own.
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "2"}

    def compile(network, kind):
        left = end - time.monotonic()
        if left <= 0:
            return None
        command = [sys.executable, __file__, "--rounds", "0", "--networks", network, "--types", kind,
                   "--batches", ",".join(map(str, options.batches)), "--peers", ",".join(options.peers),
                   # Plans that are compiled and not chosen are compiled as well.
                   "--ours", ",".join(dict.fromkeys("all" if name == "measure" else name for name in options.ours)),
                   "--device", options.device]
        command += ["--threads", str(options.threads)] if options.threads else []
        command += ["--time-limit", str(left)] if left < float("inf") else []
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    with concurrent.futures.ThreadPoolExecutor(options.processes) as pool:
        tasks = {pool.submit(compile, network, kind): (network, kind)
                 for kind in options.types for network in options.networks}
        for task in concurrent.futures.as_completed(tasks):
            name, done = " ".join(tasks[task]), task.result()
            if done is None:
                print(f"{name}: left out, the time is over", flush=True)
            elif done.returncode:
                print(f"{name}: failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]}", flush=True)
            else:
                print(f"{name}: compiled\n{done.stdout}".strip(), flush=True)
    forget_tuning()


def forget_tuning():
    """What Inductor measured while processes shared the machine is not what it would measure alone."""
    from torch._inductor.runtime.runtime_utils import cache_dir

    for file in pathlib.Path(cache_dir()).rglob("*.best_config"):
        file.unlink(missing_ok=True)


def machine(options):
    if options.device.startswith("cuda"):
        name = f"{torch.cuda.get_device_name(options.device)}, cuDNN {torch.backends.cudnn.version()}, CUDA graphs"
    else:
        names = [line.partition(":")[2].strip() for line in cpuinfo() if line.startswith("model name")]
        name = f"{names[0] if names else platform.processor()}, {torch.get_num_threads()} threads"
    return f"{name}, PyTorch {torch.__version__}"


def about(options):
    kind = f"{options.rounds} turns of each side's process, least times" if options.apart else f"{options.rounds} rounds"
    return (f"{machine(options)}, {kind}. "
            f"Command: `benches/torch_networks.py {' '.join(sys.argv[1:])}`")


def cpuinfo():
    try:
        return pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []


def main():
    options = arguments()
    if options.warm:
        return warm(options)
    if options.threads:
        torch.set_num_threads(options.threads)
    # The library of kernels may choose by measuring, as ours may.
    torch.backends.cudnn.benchmark = True
    if options.serve:
        [configuration] = configurations.all_of(options.networks, options.types, options.batches)
        with torch.no_grad():
            row, ready = prepare(configuration, options)
            configuration.set_math()
            return apart.serve(row, next(iter(ready.values()), None))
    begin = time.monotonic()
    head, rows, left_out = about(options), [], []
    if options.rounds:
        print(head, flush=True)
    for configuration in configurations.all_of(options.networks, options.types, options.batches):
        if time.monotonic() - begin > options.time_limit:
            left_out.append(str(configuration))
            continue
        try:
            with torch.no_grad():
                row = measure(configuration, options)
            rows.append(row)
            if options.rounds or row["failed"]:
                print(report.line(row), flush=True)
        except Exception as failure:  # noqa: BLE001
            print(f"{configuration} failed: {first_line(failure)}", flush=True)
        try:
            clean(options.device)
        except RuntimeError as failure:
            sys.exit(f"the device can no longer be used, what is behind {configuration} is left out: {first_line(failure)}")
        if options.output:
            pathlib.Path(f"{options.output}.md").write_text(report.markdown(head, rows))
            pathlib.Path(f"{options.output}.json").write_text(report.as_json(head, rows))
            for name, image in chart.of_all(machine(options), rows).items():
                pathlib.Path(f"{options.output}-{name}.svg").write_text(image)
    if left_out:
        print(f"left out, the time is over: {', '.join(left_out)}", flush=True)
    if any(report.wrong(row) for row in rows):
        sys.exit("some results are wrong")


if __name__ == "__main__":
    main()
