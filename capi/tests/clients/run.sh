#!/usr/bin/env bash
# Everything about the C libraries that is seen from outside: headers, symbols, clients of all known callers'
# shapes and the examples plain, under ASan and under Valgrind, a program linked against a stand-in for AMD's library, install,
# pkg-config, CMake, static linking, Python.
#
# Needs cc, c++, pkg-config, cmake, valgrind, python3; installs nothing. A tool that is missing fails the run,
# except numpy, which only the Python client needs and which is then named. `capi/tests/clients/run.sh <step> ...`
# runs the named steps. The libraries are those that a test has cargo build, or with CLIENTS_PREFIX what is installed there.
set -euo pipefail
cd "$(dirname "$0")/../../.."

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
prefix=$out/prefix
clients=capi/tests/clients
warnings=(-Wall -Wextra -Werror -pedantic)

fail() { echo "capi/tests/clients/run.sh: $*" >&2; exit 1; }

# The tree that everything else is built against. After all tests there is nothing to build.
if [ -n "${CLIENTS_PREFIX:-}" ]; then
    cp -a "$CLIENTS_PREFIX" "$prefix"
else
    cargo test -q --locked --workspace --test header --no-run
    capi/install.sh --prefix "$prefix" --built "${CARGO_TARGET_DIR:-target}/debug/deps" >"$out/install.log" 2>&1 ||
        { cat "$out/install.log" >&2; fail "install failed"; }
fi
# The clients have their data in host memory, whatever devices there are.
export FUSEPLAN_BACKEND=cpu
# What solvers' times were is nobody's business but this run's.
export MIOPEN_CUSTOM_CACHE_DIR=$out/cache
export LD_LIBRARY_PATH=$prefix/lib PKG_CONFIG_PATH=$prefix/lib/pkgconfig
# What calls the library by the loader only is not linked to it. Symbols are bound when a client is loaded, as
# frameworks that harden their libraries have it.
flags=(-I"$prefix/include" -I"$clients" -L"$prefix/lib" -Wl,--as-needed -lMIOpen -lfuseplan -ldl -lm -lpthread -Wl,-z,now)

# build <compiler and flags> -- <source> <program>
build() {
    local compiler=()
    while [ "$1" != -- ]; do compiler+=("$1"); shift; done
    "${compiler[@]}" -g -O1 "${warnings[@]}" "$2" -o "$3" "${flags[@]}"
}

# Every client as C99 or C++17, those of libfuseplan and its examples among them; the C sample as both.
build_clients() {
    local folder=$1; shift
    mkdir -p "$folder"
    python3 $clients/matrix.py capi/include "$out/matrix.c"
    for source in $clients/*.c "$out/matrix.c"; do
        build cc -std=c99 "$@" -- "$source" "$folder/$(basename "$source" .c)"
    done
    for source in $clients/*.cpp; do
        build c++ -std=c++17 "$@" -- "$source" "$folder/$(basename "$source" .cpp)"
    done
    build c++ -std=c++17 -x c++ "$@" -- $clients/cba_sample.c "$folder/cba_sample_cpp"
    for source in $clients/fuseplan/*.c examples/plan.c; do
        build cc -std=c99 "$@" -- "$source" "$folder/fuseplan_$(basename "$source" .c)"
    done
    for source in $clients/fuseplan/*.cpp examples/plan.cpp; do
        build c++ -std=c++17 "$@" -- "$source" "$folder/fuseplan_$(basename "$source" .cpp)_cpp"
    done
}

# run_clients <folder> [command in front], but for the one that the variable `skip` names
run_clients() {
    local folder=$1 backend; shift
    for program in "$folder"/*; do
        [ "$(basename "$program")" != "${skip:-}" ] || continue
        # Without a GPU it skips.
        case $program in */device_pointers) backend=cuda ;; *) backend=cpu ;; esac
        FUSEPLAN_BACKEND=$backend "$@" "$program" >"$out/client.log" 2>&1 || { tail -40 "$out/client.log" >&2; fail "$(basename "$program") failed"; }
    done
}

step_headers() {
    printf '#include <miopen/miopen.h>\n#include <miopen/version.h>\n#include <miopen/fuseplan.h>\nint unit(void);\nint unit(void) { return MIOPEN_VERSION_MAJOR; }\n' >"$out/header.c"
    for standard in c99 c11; do
        cc -std=$standard "${warnings[@]}" -Wstrict-prototypes -I"$prefix/include" -c "$out/header.c" -o "$out/header.o"
    done
    c++ -std=c++17 -x c++ "${warnings[@]}" -DMIOPEN_BETA_API -I"$prefix/include" -c "$out/header.c" -o "$out/header.o"
    # Alone, beside MIOpen's, and as C++.
    printf '#include <fuseplan.h>\n#ifdef BOTH\n#include <miopen/miopen.h>\n#include <miopen/version.h>\n#include <miopen/fuseplan.h>\n#endif\nint unit(void);\nint unit(void) { return FUSEPLAN_VERSION_MAJOR; }\n' >"$out/own.c"
    printf '#include <fuseplan.hpp>\n#include <miopen/fuseplan.h>\n' >"$out/own.cpp"
    local both
    for both in -UBOTH -DBOTH; do
        cc -std=c99 "${warnings[@]}" -Wstrict-prototypes "$both" -I"$prefix/include" -c "$out/own.c" -o "$out/header.o"
        c++ -std=c++17 -x c++ "${warnings[@]}" "$both" -I"$prefix/include" -c "$out/own.c" -o "$out/header.o"
    done
    c++ -std=c++17 "${warnings[@]}" -I"$prefix/include" -c "$out/own.cpp" -o "$out/header.o"
    # Programs for HIP get HIP's stream where they have HIP's header, in whatever way they include it.
    local language platform backend hip way expected stream count=0 flags
    for language in c99 c++17; do
        for platform in '' __HIP_PLATFORM_AMD__ __HIP_PLATFORM_HCC__ __HIP__; do
            for backend in '' 0 1; do
                for hip in '' "$clients/hip"; do
                    expected=${backend:-$([ -n "$platform" ] && [ -n "$hip" ] && echo 1 || echo 0)}
                    stream=$([ "$expected" = 1 ] && [ -n "$hip" ] && echo 1 || echo 0)
                    for way in 1 2 3 4; do
                        # HIP's own header wants its header, and a platform.
                        case $way$platform in [13]) continue ;; esac
                        case $way$hip in [13]) continue ;; esac
                        [ "$way$expected$hip" != 21 ] || continue
                        [ "$stream$platform" != 1 ] || continue
                        flags=(-DWAY="$way" -DEXPECT_BACKEND="$expected" -DEXPECT_STREAM="$stream" -I"$prefix/include")
                        [ -z "$platform" ] || flags+=(-D"$platform"=1)
                        [ -z "$backend" ] || flags+=(-DMIOPEN_BACKEND_HIP="$backend")
                        [ -z "$hip" ] || flags+=(-I"$hip")
                        case $language in c++*) flags+=(-x c++) ;; esac
                        cc -std=$language "${warnings[@]}" "${flags[@]}" -fsyntax-only $clients/headers/stream.c ||
                            fail "stream.c does not compile with ${flags[*]}"
                        count=$((count + 1))
                    done
                done
            done
        done
    done
    echo "   $count ways to include the header"
}

# exports <library> <pattern of versioned names> <headers and their macro>: soname, nodelete, and what is declared exported
# under its version; leaves the names in $out/names.
exports() {
    local library=$prefix/lib/$1 pattern=$2 macro=$3
    shift 3
    readelf -d "$library" | grep "SONAME.*\[$(basename "$library")\]" >/dev/null || fail "the soname is not $(basename "$library")"
    readelf -d "$library" | grep 'FLAGS_1.*NODELETE' >/dev/null || fail "dlclose would unmap $library"
    nm -D --defined-only "$library" | awk '{print $3}' | sort >"$out/exported"
    grep -v -E "$pattern" "$out/exported" && fail "exported without its version"
    sed 's/@@.*//' "$out/exported" >"$out/names"
    cat "$@" | tr '\n' ' ' | grep -o -E "$macro \w+( char\*)? +\w+ *\(" | grep -o -E '\w+ *\($' | tr -d '( ' | sort >"$out/declared"
    diff "$out/declared" "$out/names" || fail "headers and $library differ"
    echo "   $(wc -l <"$out/names") functions of $(basename "$library"), all versioned, as declared"
}

step_symbols() {
    exports libfuseplan.so.0 '^fuseplan_\w+@@FUSEPLAN_0$' FUSEPLAN_EXPORT capi/include/fuseplan.h
    exports libMIOpen.so.1 '^(miopen\w+@@MIOPEN_HIP_1|fuseplan\w+@@FUSEPLAN_1)$' MIOPEN_EXPORT capi/include/miopen/*.h
    # What AMD's library has, this one has too, so that programs load that bind every symbol at once.
    local missing
    missing=$(grep -v '^#' $clients/names.txt | sort | comm -23 - "$out/names")
    [ -z "$missing" ] || fail "AMD's library has, this one lacks: $missing"
    { grep -v '^#' $clients/names.txt | sed 's/.*/extern void &(void);/'; echo 'void (*every[])(void) = {'
      grep -v '^#' $clients/names.txt | sed 's/$/,/'; echo '}; int main(void) { return every[0] == 0; }'; } >"$out/every.c"
    cc -fno-builtin "$out/every.c" -o "$out/every" -L"$prefix/lib" -lMIOpen -Wl,-z,now
    LD_BIND_NOW=1 "$out/every" || fail "a program that refers to every function does not run"
}

step_plain() {
    build_clients "$out/plain"
    run_clients "$out/plain" env MIOPEN_LOG_LEVEL=1
    "$out/plain/matrix" 2>/dev/null | sed 's/^/   /'
}

step_asan() {
    build_clients "$out/asan" -fsanitize=address,undefined -fno-sanitize-recover=all
    nm "$out/asan/misuse" | grep __asan_init >/dev/null || fail "the clients were built without ASan"
    # A child may find a lock of the sanitizer's allocator held, which the allocator of the C library never leaves so.
    skip=forks run_clients "$out/asan" env MIOPEN_LOG_LEVEL=1 ASAN_OPTIONS=detect_leaks=1
}

step_valgrind() {
    [ -d "$out/plain" ] || build_clients "$out/plain"
    # It judges forked processes by what threads that are not there have left behind.
    skip=forks run_clients "$out/plain" env MIOPEN_LOG_LEVEL=1 valgrind -q --error-exitcode=99 --leak-check=full \
        --show-leak-kinds=definite,indirect --errors-for-leak-kinds=definite,indirect --fair-sched=yes
}

# A program linked against AMD's library runs on this one, and the loader says nothing.
step_standin() {
    local folder=$out/standin
    mkdir -p "$folder"
    python3 $clients/standin.py capi/include "$folder/standin.c"
    echo 'MIOPEN_HIP_1 { global: miopen*; local: *; };' >"$folder/standin.map"
    cc -shared -fPIC "$folder/standin.c" -Wl,--version-script="$folder/standin.map" -Wl,-soname,libMIOpen.so.1 \
        -o "$folder/libMIOpen.so"
    cc -std=c99 "${warnings[@]}" examples/cba.c -I"$prefix/include" -L"$folder" -lMIOpen -o "$folder/cba"
    nm -D "$folder/cba" | grep 'U miopenCreate@MIOPEN_HIP_1' >/dev/null || fail "the stand-in's symbols have no versions"
    ln -sf libMIOpen.so "$folder/libMIOpen.so.1"
    ! LD_LIBRARY_PATH=$folder "$folder/cba" >/dev/null 2>&1 || fail "the stand-in works"
    "$folder/cba" >"$folder/stdout" 2>"$folder/stderr" || { cat "$folder/stderr" >&2; fail "linked against the stand-in, cba fails"; }
    [ ! -s "$folder/stderr" ] || { cat "$folder/stderr" >&2; fail "stderr is not empty"; }
}

step_packages() {
    # shellcheck disable=SC2046
    cc -std=c99 "${warnings[@]}" examples/cba.c -o "$out/cba_pkg" $(pkg-config --cflags --libs 'miopen >= 3.0')
    "$out/cba_pkg" | sed 's/^/   /'
    # shellcheck disable=SC2046
    cc -std=c99 "${warnings[@]}" examples/plan.c -o "$out/plan_pkg" $(pkg-config --cflags --libs 'fuseplan >= 0.1')
    "$out/plan_pkg" | sed 's/^/   /'
    cmake -S examples -B "$out/cmake" -DCMAKE_PREFIX_PATH="$prefix" >"$out/cmake.log" || { cat "$out/cmake.log"; fail "cmake"; }
    cmake --build "$out/cmake" >>"$out/cmake.log" 2>&1 || { cat "$out/cmake.log"; fail "cmake --build"; }
    local example
    for example in cba plan plan_cpp; do "$out/cmake/$example" >/dev/null; done
    # With HIP's package the target brings HIP along, as AMD's does, unless it is told not to.
    local hip
    for hip in ON OFF; do
        { cmake -S $clients/cmake -B "$out/cmake-hip-$hip" -DMIOPEN_BACKEND_HIP=$hip -DCMAKE_PREFIX_PATH="$prefix;$PWD/$clients/hip" &&
            cmake --build "$out/cmake-hip-$hip"; } >"$out/cmake.log" 2>&1 || { cat "$out/cmake.log"; fail "cmake with HIP $hip"; }
    done
    # shellcheck disable=SC2046
    cc -std=c99 "${warnings[@]}" -DWAY=4 -DEXPECT_BACKEND=1 -DEXPECT_STREAM=1 -D__HIP_PLATFORM_AMD__ -I$clients/hip \
        $(pkg-config --cflags miopen) -fsyntax-only $clients/headers/stream.c
    # Without the shared library, and the installed tree somewhere else.
    mv "$prefix" "$out/moved"
    # shellcheck disable=SC2046
    PKG_CONFIG_PATH=$out/moved/lib/pkgconfig cc -std=c99 "${warnings[@]}" examples/cba.c -o "$out/cba_static" \
        -I"$out/moved/include" "$out/moved/lib/libMIOpen.a" -lgcc_s -lpthread -lm -ldl
    cc -std=c99 "${warnings[@]}" examples/plan.c -o "$out/plan_static" \
        -I"$out/moved/include" "$out/moved/lib/libfuseplan.a" -lgcc_s -lpthread -lm -ldl
    mv "$out/moved" "$prefix"
    LD_LIBRARY_PATH= "$out/cba_static" >/dev/null
    LD_LIBRARY_PATH= "$out/plan_static" >/dev/null
}

step_python() {
    if ! python3 -c 'import numpy' 2>/dev/null; then
        echo "   skipped: python3 has no numpy"
        return
    fi
    MIOPEN_LIBRARY=$prefix/lib/libMIOpen.so.1 python3 examples/python/cba.py | sed 's/^/   /'
}

steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(headers symbols plain asan valgrind standin packages python)
for step in "${steps[@]}"; do
    echo "-- capi $step"
    "step_$step"
done
