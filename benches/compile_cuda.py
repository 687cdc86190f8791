#!/usr/bin/env python3
"""Times how long the convolutions of a network take to be compiled for the NVIDIA GPU of this machine.

All plans of a network of the field list (`driver/src/bench/field.tsv`), equal ones as often as the network has them, are
compiled by one call of `fuseplan.compile_all` in a process of its own: `cold` with a new directory for the disk's cache,
`stored` in another process with what that left there, `memory` once more in that process. Seconds, without opening the
device. NVRTC has no cache of its own, the driver's is switched off. With --one-by-one plans are compiled behind each
other as well, in a directory of their own.

Needs the package `fuseplan` of a release build, NumPy and NVRTC.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from cuda import layers

# The type of tensors and whether products may be of TF32.
TYPES = {"f16": ("float16", False), "bf16": ("bfloat16", False), "f32": ("float32", False), "tf32": ("float32", True)}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    comma = lambda text: text.split(",")
    parser.add_argument("--networks", type=comma, default=["resnet50"])
    parser.add_argument("--types", type=comma, default=["f16", "f32"], help="of f16, bf16, f32, tf32; default: f16,f32")
    parser.add_argument("--layouts", type=comma, default=["nhwc", "nchw"])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--one-by-one", action="store_true", help="without several threads, too")
    parser.add_argument("--child", choices=["all", "one"], help=argparse.SUPPRESS)
    return parser.parse_args()


def plan(fuseplan, layer, name, layout):
    """The plan of a layer, on shapes alone."""
    layout = {(2, "nhwc"): "NHWC", (3, "nhwc"): "NDHWC", (2, "nchw"): "NCHW", (3, "nchw"): "NCDHW"}[len(layer.image), layout]
    made = fuseplan.Plan((layer.batch, layer.channels, *layer.image), dtype=TYPES[name][0], layout=layout)
    made = made.conv((layer.filters, layer.channels // layer.groups, *layer.taps), stride=layer.strides,
                     padding=layer.pads, dilation=layer.dilations, groups=layer.groups)
    made = made.bias() if layer.shift else made
    made = made.residual() if layer.residual else made
    return made if layer.activation == "none" else made.activation(layer.activation)


def child(options):
    """Times one network in one type and layout, and prints the seconds."""
    import fuseplan
    name, layout = options.types[0], options.layouts[0]
    handle, tf32 = fuseplan.Handle("cuda"), TYPES[name][1]
    plans = [plan(fuseplan, layer, name, layout) for layer in layers.field(options.networks[0], options.batch)
             for _ in range(layer.count)]
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        if options.child == "all":
            kept = fuseplan.compile_all(plans, handle, tf32=tf32)
        else:
            kept = [one.compile(handle, tf32=tf32) for one in plans]
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"plans": len(kept), "seconds": seconds}))


def measured(network, name, layout, batch, kind, directory):
    command = [sys.executable, __file__, "--child", kind, "--networks", network, "--types", name, "--layouts", layout,
               "--batch", str(batch)]
    environment = {**os.environ, "MIOPEN_CUSTOM_CACHE_DIR": directory, "CUDA_CACHE_DISABLE": "1"}
    return json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)


def main():
    options = arguments()
    if options.child:
        return child(options)
    print(f"{os.cpu_count()} processors, batch {options.batch}, seconds\n")
    sides = ["cold", "stored", "memory"] + (["cold, one by one"] if options.one_by_one else [])
    print(f"| network | type | plans | {' | '.join(sides)} |\n|---|---|---{'|--:' * len(sides)}|")
    for network in options.networks:
        for name in options.types:
            for layout in options.layouts:
                with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as other:
                    of = lambda kind, where: measured(network, name, layout, options.batch, kind, where)
                    cold, stored = of("all", directory), of("all", directory)
                    seconds = [cold["seconds"][0], *stored["seconds"]]
                    seconds += [of("one", other)["seconds"][0]] if options.one_by_one else []
                cells = " | ".join(f"{second:.3f}" for second in seconds)
                print(f"| {network} | {name} {layout.upper()} | {cold['plans']} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
