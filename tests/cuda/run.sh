#!/usr/bin/env bash
# Everything about the CUDA backend that wants an NVIDIA GPU:
#
#   device    the backend's own tests, and cudarc's streams and memory
#   corpus    the named cases, on every solver that takes them
#   beside    the named cases and 2,000 random ones on the CPU too, and both devices' results next to each other: the
#             table of docs/same-numbers.md, in target/cuda/same-numbers.md
#   random    2,000 random cases of each data type and layout, on the solver that a plan gets
#   clients   a C program with device pointers and streams of its own; the command, verified
#   memcheck  the corpus on every solver, and the backend's own tests, under this tool of compute-sanitizer
#   synccheck, racecheck
#             the corpus on the solver that a plan gets, and matrix products on every solver, under these
#
#   tests/cuda/run.sh [STEP…]
#
# Programs are built with cargo, or taken from the folder FUSEPLAN_PROGRAMS, for a machine without cargo:
# `tests/cuda/run.sh programs DIR` fills it elsewhere, from a tree at the same path. NVRTC and instrumented kernels
# keep processors busy, not the GPU, so the suite runs in several processes, spread over the GPUs.
# FUSEPLAN_TEST_SEED draws other random cases.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
work=$target/cuda
processes=$(nproc)

# test_program DIR NAME PACKAGE: a test's program, without what only a debugger wants.
test_program() {
    local built
    built=$(cargo test --release --locked --no-run -p "$3" --test "$2" 2>&1 | tee /dev/stderr | sed -n 's/.*Executable .*(\(.*\))$/\1/p')
    strip -o "$1/$2" "$built"
}

step_programs() {
    local to=${1:-$work/programs}
    mkdir -p "$to"
    test_program "$to" cuda fuseplan
    test_program "$to" side_by_side fuseplan
    test_program "$to" run fuseplan-cuda
    test_program "$to" interop fuseplan-interop
    cargo build --release --locked -p fuseplan-driver -p miopen-capi
    strip -o "$to/fuseplan" "$target/release/fuseplan"
    strip -o "$to/libMIOpen.so.1" "$target/release/libMIOpen.so"
    ln -sf libMIOpen.so.1 "$to/libMIOpen.so"
    cc -std=c99 -O1 -Icapi/include -Icapi/tests/clients capi/tests/clients/device_pointers.c -o "$to/device_pointers" -L"$to" -lMIOpen -ldl -lm
    rm "$to/libMIOpen.so"
}

step_device() {
    REQUIRE_BACKEND=cuda "$programs/run"
    REQUIRE_BACKEND=cuda "$programs/interop"
}

# in_processes NAME COUNT THREADS [COMMAND…] -- [ARGUMENT…]: the suite in COUNT processes, each behind COMMAND.
in_processes() {
    local name=$1 count=$2 threads=$3 gpus start=$SECONDS failed=0 command=() of=() i
    shift 3
    while [ "$1" != -- ]; do command+=("$1"); shift; done
    shift
    gpus=$(nvidia-smi --list-gpus | wc -l)
    rm -rf "${work:?}/$name"
    mkdir -p "$work/$name"
    for ((i = 0; i < count; i++)); do
        CUDA_VISIBLE_DEVICES=$((i % gpus)) REQUIRE_BACKEND=cuda \
            FUSEPLAN_TEST_EVERY=$count FUSEPLAN_TEST_OFFSET=$i \
            "${command[@]}" "$programs/cuda" --format pretty --test-threads="$threads" "$@" \
            >"$work/$name/$i.log" 2>&1 &
        of+=($!)
    done
    for i in "${!of[@]}"; do
        wait "${of[$i]}" || { failed=$((failed + 1)); grep -E -A12 '^---- |^=========' "$work/$name/$i.log" | head -n 60; }
    done
    echo "$name: $(sed -n 's/^test result: .* \([0-9]*\) passed; .*/\1/p' "$work/$name"/*.log | awk '{ n += $1 } END { print n }') passed," \
        "$failed of $count processes failed, $((SECONDS - start)) s"
    [ $failed = 0 ]
}

# Kernels of the corpus are kept for the tools that follow: compilers need not be watched.
step_corpus() {
    MIOPEN_CUSTOM_CACHE_DIR=$work/kernels FUSEPLAN_TEST_CASES=0 in_processes corpus $((processes / 2)) 3 --
}

step_beside() {
    rm -f "$work/same-numbers.md"
    REQUIRE_BACKEND=cuda MIOPEN_CUSTOM_CACHE_DIR=$work/kernels FUSEPLAN_TEST_PROCESSES=$((processes / 2)) FUSEPLAN_TEST_CASES=2000 \
        FUSEPLAN_TEST_TABLE=$work/same-numbers.md "$programs/side_by_side" --test-threads=3
    cat "$work/same-numbers.md"
}

# About one case in 12 is of a type and a layout with two spatial dimensions, one in 48 of one with three.
# gets its 2,000 with any seed.
step_random() {
    export MIOPEN_DISABLE_CACHE=1 FUSEPLAN_TEST_SOLVERS=chosen
    FUSEPLAN_TEST_CASES=26400 \
        in_processes random-2d $((processes / 2)) 3 -- random --skip gap --skip chwn --skip cdhw --skip dhwc
    FUSEPLAN_TEST_CASES=105600 \
        in_processes random-3d $((processes / 2)) 3 -- random --skip nchw --skip nhwc --skip chwn
    unset MIOPEN_DISABLE_CACHE FUSEPLAN_TEST_SOLVERS
    local drawn
    drawn=$(sed -nE 's/^test .*\.(f32|f16|bf16)\.(nc?d?hw|nd?hwc) +\.\.\. ok$/\1 \2/p' "$work"/random-*/*.log | sort | uniq -c)
    echo "$drawn"
    [ "$(awk '$1 >= 2000' <<<"$drawn" | wc -l)" = 12 ] || { echo "fewer than 2,000 of some"; false; }
}

step_clients() {
    local kind layout
    FUSEPLAN_BACKEND=cuda REQUIRE_BACKEND=cuda LD_LIBRARY_PATH=$programs "$programs/device_pointers"
    "$programs/fuseplan" devices
    for kind in CBAInfer CBAInferfp16 CBAInferbfp16; do
        for layout in NCHW NHWC; do
            "$programs/fuseplan" $kind --backend cuda -F 0 -n 8 -c 64 -H 28 -W 28 -k 128 -y 3 -x 3 -p 1 -q 1 \
                -I $layout -f $layout -O $layout -V 1 -t 1 -i 20
        done
    done
}

# sanitized TOOL NAME [ARGUMENT…]: the corpus, or what of it the arguments name, under a tool. With several threads that
# launch, racecheck reports errors of its own.
sanitized() {
    MIOPEN_CUSTOM_CACHE_DIR=$work/kernels FUSEPLAN_TEST_CASES=0 \
        in_processes "$2" "$processes" 1 compute-sanitizer --tool "$1" --error-exitcode 99 -- "${@:3}"
}
step_memcheck() {
    local program
    sanitized memcheck memcheck
    # Failing calls are some of the tests.
    for program in run interop; do
        REQUIRE_BACKEND=cuda compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 99 "$programs/$program"
    done
}
step_synccheck() {
    FUSEPLAN_TEST_SOLVERS=chosen sanitized synccheck synccheck
    sanitized synccheck synccheck-matrix matrix
}
step_racecheck() {
    FUSEPLAN_TEST_SOLVERS=chosen sanitized racecheck racecheck
    sanitized racecheck racecheck-matrix matrix
}

mkdir -p "$work"
if [ "${1:-}" = programs ]; then
    step_programs "${2:-}"
    exit
fi
programs=${FUSEPLAN_PROGRAMS:-$work/programs}
[ -n "${FUSEPLAN_PROGRAMS:-}" ] || step_programs
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(device corpus beside random clients memcheck synccheck racecheck)
for step in "${steps[@]}"; do
    echo "== cuda: $step"
    "step_$step"
done
