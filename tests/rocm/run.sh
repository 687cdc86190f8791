#!/usr/bin/env bash
# What can be known of the ROCm backend without an AMD GPU:
#
#   headers    the bindings agree with the headers of HIP 7 and HIP 6
#   compile    every kernel family, for every architecture, through the real compilers of both; and the real
#              runtime with no device
#   simulate   cases of the suite through the backend's own way from a plan to a launch, on a runtime without a
#              GPU that runs the kernels' text on the CPU; and next to the CPU backend's results
#   clients    on that runtime, a C program with device pointers and streams of its own; the command, verified
#
# and, by name only, with one:
#
#   gpu        the same clients on the GPU
#
#   tests/rocm/run.sh [STEP…]
#
# HIP is unpacked from Debian's archive into target/rocm. Where that cannot be reached, or has no such version any
# more, what needs it is skipped, loudly; with REQUIRE_HIP=1 that is a failure. Of the kernels, and of the suite's
# cases, one in FUSEPLAN_TEST_EVERY is taken; by default so few that it takes a few minutes, with 1 all of them.
#
# Tests are named among those of the whole workspace, so that what `cargo test --workspace` built serves here too.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
work=$target/rocm

declare -A missing
# The folder of a major version of HIP in `hip`; fails if there is none.
hip() {
    local major=$1 suites suite
    hip=$work/hip$major
    [ -x "$hip/run" ] && return
    [ -z "${missing[$major]-}" ] || return 1
    missing[$major]=1
    [ "$(uname -sm)" = "Linux x86_64" ] && command -v apt-get dpkg-deb >/dev/null || return 1
    # The suite that had it when this was written, then those that it moves to.
    case $major in
    7) suites=(sid,experimental sid forky) ;;
    *) suites=(forky sid) ;;
    esac
    for suite in "${suites[@]}"; do
        tests/rocm/root.sh "$hip" "$suite" "libamdhip64-$major" "libhiprtc$major" "libhiprtc-builtins$major" \
            libamdhip64-dev >"$work/hip$major.log" 2>&1 && return
    done
    tail -n 3 "$work/hip$major.log" >&2
    rm -rf "$hip"
    return 1
}

skip() {
    echo "SKIPPED: $1 needs HIP $2, which Debian's archive did not give" >&2
    [ "${REQUIRE_HIP:-0}" != 1 ]
}

step_headers() {
    local major includes
    includes=$(gcc -print-file-name=include)
    for major in 7 6; do
        hip $major || { skip headers $major; continue; }
        cargo run -q --locked -p fuseplan-hip-sys --example generate -- \
            "$hip/root/usr/include" --check -isystem "$includes"
    done
}

# compiled MAJOR EVERY ARCH…: the compile test with a version of HIP.
compiled() {
    local major=$1 every=$2
    shift 2
    # The compiler keeps what it made; this is about what it makes.
    AMD_COMGR_CACHE=0 CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=$work/hip$major/run REQUIRE_HIPRTC=1 \
        FUSEPLAN_TEST_EVERY=${FUSEPLAN_TEST_EVERY:-$every} FUSEPLAN_TEST_ARCHS="$*" \
        cargo test -q --locked --workspace --exclude fuseplan-cuda --test compile >"$work/compile$major-$1.log" 2>&1 ||
        { cat "$work/compile$major-$1.log"; return 1; }
    echo "HIP $major, $*: $(grep '^test result' "$work/compile$major-$1.log")"
}

step_compile() {
    local features=:sramecc+:xnack- first
    cargo test -q --locked --workspace --exclude fuseplan-cuda --test compile --no-run
    # A process compiles one kernel at a time.
    if hip 7; then
        compiled 7 10 gfx942$features & first=$!
        compiled 7 10 gfx1201
        wait $first
        compiled 7 40 gfx90a$features gfx950$features gfx1101 & first=$!
        compiled 7 40 gfx1100 gfx1151 gfx1200
        wait $first
    else
        skip compile 7
    fi
    if hip 6; then
        compiled 6 40 gfx90a$features gfx942$features gfx1100 & first=$!
        compiled 6 40 gfx950$features gfx1101 gfx1151 gfx1200 gfx1201
        wait $first
    else
        skip compile 6
    fi
}

# The runtime without a GPU, as an installation of ROCm.
fake() {
    local lib=$work/fake/lib name
    cargo build -q --locked -p fuseplan-fake-hip
    mkdir -p "$lib"
    for name in libamdhip64 libhiprtc; do
        ln -sfn "$target/debug/libfuseplan_fake_hip.so" "$lib/$name.so.7"
    done
}

step_simulate() {
    fake
    simulated() {
        ROCM_PATH=$work/fake FAKE_HIP_KERNELS=$work/kernels FAKE_HIP_ARCHS=$1 MIOPEN_DISABLE_CACHE=1 \
            FUSEPLAN_TEST_EVERY=${FUSEPLAN_TEST_EVERY:-$2} REQUIRE_BACKEND=rocm \
            cargo test -q --locked --workspace --test "${3:-rocm}" >"$work/simulate.log" 2>&1 ||
            { grep -v '^\.*$' "$work/simulate.log" | tail -n 200; return 1; }
        echo "$1, simulated${3:+, $3}: $(grep '^test result' "$work/simulate.log")"
    }
    # Each kind of matrix instruction, and a processor that has none.
    simulated gfx942:sramecc+:xnack- 60
    simulated gfx950:sramecc+:xnack- 200
    simulated gfx1100 180
    simulated gfx1201 180
    simulated gfx1030 400
    # Half of the first ones, whose kernels are there.
    FUSEPLAN_TEST_BESIDE=rocm FUSEPLAN_TEST_TABLE=$work/same-numbers.md \
        simulated gfx942:sramecc+:xnack- 120 side_by_side
    grep -q '^| ConvForward' "$work/same-numbers.md"
}

# On the GPU that there is, or is said to be. What a test has cargo build, the library and the command, is used.
clients() {
    cargo test -q --locked --workspace --test header --test cli --no-run
    ln -sfn "$target/debug/deps/libMIOpen.so" "$work/libMIOpen.so.1"
    cc -std=c99 -O1 -Icapi/include -Icapi/tests/clients capi/tests/clients/device_pointers.c -o "$work/device_pointers" \
        "$work/libMIOpen.so.1" -ldl -lm
    FUSEPLAN_BACKEND=rocm REQUIRE_BACKEND=rocm MIOPEN_LOG_LEVEL=1 LD_LIBRARY_PATH=$work "$work/device_pointers"
    "$target/debug/fuseplan" CBAInfer --backend rocm -F 0 -n 2 -c 32 -H 14 -W 14 -k 64 -y 3 -x 3 -p 1 -q 1 -V 1 -i 2
}

# A runtime without its compiler: the command says so, and what was looked for, and exits as without a device.
without_compiler() {
    local bare=$work/bare code=0 looked="the run-time compiler hiprtc is not installed: looked for libhiprtc.so.7"
    mkdir -p "$bare/lib"
    ln -sfn "$target/debug/libfuseplan_fake_hip.so" "$bare/lib/libamdhip64.so.7"
    ROCM_PATH=$bare "$target/debug/fuseplan" CBAInfer --backend rocm -F 4 -n 1 >/dev/null 2>"$bare/run.log" || code=$?
    ROCM_PATH=$bare "$target/debug/fuseplan" devices >"$bare/devices.log"
    if [ $code != 4 ] || ! grep -q "^error: rocm: .*$looked" "$bare/run.log" ||
        ! grep -q "^  toolchain      none$" "$bare/devices.log" || ! grep -q "note .*$looked" "$bare/devices.log"; then
        echo "exit code $code" && cat "$bare/run.log" "$bare/devices.log"
        return 1
    fi
}

step_clients() {
    fake
    ROCM_PATH=$work/fake FAKE_HIP_KERNELS=$work/kernels FAKE_HIP_ARCHS=gfx942:sramecc+:xnack- \
        MIOPEN_DISABLE_CACHE=1 clients
    MIOPEN_DISABLE_CACHE=1 FAKE_HIP_ARCHS=gfx942:sramecc+:xnack- without_compiler
}

step_gpu() { clients; }

mkdir -p "$work"
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(headers compile simulate clients)
for step in "${steps[@]}"; do
    echo "== rocm: $step"
    "step_$step"
done
