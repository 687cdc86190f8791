#!/usr/bin/env bash
# ONNX Runtime's ROCm provider, as it comes from PyPI, on fuseplan's libMIOpen.so.1 and on a HIP runtime without a GPU
# whose memory is the host's: a client that nobody here wrote, linked against AMD's library, unchanged.
#
#   tests/ort/run.sh
#
# The packages go to target/ci-python-ort. Where PyPI does not give them the run is skipped, loudly; with REQUIRE_ORT=1
# that is a failure. Needs cc, python3 and cargo, and 64-bit x86 Linux, which is all that the package is built for.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
python=$target/ci-python-ort
lib=$target/ort/lib
packages=(onnxruntime-rocm==1.22.2.post3 onnx==1.23.2 protobuf==6.33.0 ml_dtypes==0.6.0 typing_extensions==4.16.0
    numpy==2.2.6)

skip() {
    echo "SKIPPED: ONNX Runtime's ROCm provider: $*" >&2
    [ "${REQUIRE_ORT:-0}" != 1 ] || exit 1
    exit 0
}

[ "$(uname -sm)" = "Linux x86_64" ] || skip "built for Linux on x86-64 only"
[ -x "$python/bin/pip" ] || python3 -m venv "$python"
mkdir -p "$lib"
# Without what the package asks for besides: graphs of its own kind need no more than these.
"$python/bin/pip" install -q --no-deps "${packages[@]}" 2>"$target/ort/pip.log" ||
    skip "PyPI does not give it to this Python: $(tail -n 1 "$target/ort/pip.log")"

cc=(cc -std=c11 -O1 -Wall -Wextra -Werror -pedantic -shared -fPIC)
"${cc[@]}" tests/ort/hip.c -Wl,--version-script=tests/ort/hip.map -Wl,-soname,libamdhip64.so.7 \
    -o "$lib/libamdhip64.so.7"
for name in libhipblas.so.3 libhipfft.so.0 librocm_smi64.so.1 libroctracer64.so.4; do
    "${cc[@]}" tests/ort/others.c -Wl,-soname,$name -o "$lib/$name"
done
# What a test of the C library has cargo build is used, so that after all tests there is nothing to build.
cargo test -q --locked --workspace --test header --no-run
ln -sfn "$target/debug/deps/libMIOpen.so" "$lib/libMIOpen.so.1"

FUSEPLAN_BACKEND=cpu FUSEPLAN_LIBRARY=$lib/libMIOpen.so.1 LD_LIBRARY_PATH=$lib \
    "$python/bin/python" tests/ort/convolutions.py
