#!/usr/bin/env bash
# Builds the C libraries, libMIOpen and libfuseplan, and installs them: libraries, headers, pkg-config files, CMake packages.
#
#   capi/install.sh --prefix /usr/local [--libdir lib] [--destdir DIR] [--profile release] [--built FOLDER]
#
# With a folder in which they lie, the libraries are taken from there instead of being built.
# Everything that is installed finds its own place from where it lies, so the tree may be moved.
set -euo pipefail
cd "$(dirname "$0")/.."

prefix=/usr/local libdir=lib destdir= profile=release built=
while [ $# -gt 0 ]; do
    case $1 in
        --prefix) prefix=$2 ;;
        --libdir) libdir=$2 ;;
        --destdir) destdir=$2 ;;
        --profile) profile=$2 ;;
        --built) built=$2 ;;
        *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
    shift 2
done

if [ -z "$built" ]; then
    cargo build --locked --package miopen-capi --package fuseplan-capi --profile "$profile"
    built=${CARGO_TARGET_DIR:-target}/$profile
fi
lib=$destdir$prefix/$libdir include=$destdir$prefix/include

# The three numbers that a header defines behind a prefix.
version() {
    local part number=
    for part in MAJOR MINOR PATCH; do
        number=$number.$(sed -n "s/^#define $1_VERSION_$part //p" "$2")
    done
    echo "${number#.}"
}
miopen=$(version MIOPEN capi/include/miopen/version.h)
fuseplan=$(version FUSEPLAN capi/include/fuseplan.h)

install -d "$lib/pkgconfig" "$lib/cmake/miopen" "$lib/cmake/fuseplan" "$include/miopen"
# library <as built> <name> <number of the soname> <rest of the file's name>
library() {
    install -m 755 "$built/$1.so" "$lib/$2.so.$3.$4"
    ln -sf "$2.so.$3.$4" "$lib/$2.so.$3"
    ln -sf "$2.so.$3" "$lib/$2.so"
    install -m 644 "$built/$1.a" "$lib/$2.a"
}
# libMIOpen's soname says 1; the rest of the file's name is the interface version behind it.
library libMIOpen libMIOpen 1 "$miopen"
library libfuseplan_c libfuseplan "${fuseplan%%.*}" "${fuseplan#*.}"
install -m 644 capi/include/miopen/*.h "$include/miopen/"
install -m 644 capi/include/fuseplan.h capi/include/fuseplan.hpp "$include/"
# fill <template> <folder below the prefix> <version>: the file finds the prefix by going up from there.
fill() {
    local folder=$2 up
    up=$(sed 's|[^/]\{1,\}|..|g' <<<"$folder")
    sed "s|@version@|$3|; s|@libdir@|$libdir|; s|@up@|$up|" "capi/package/$1.in" >"$destdir$prefix/$folder/$1"
}
# package <name> <version>
package() {
    fill "$1.pc" "$libdir/pkgconfig" "$2"
    fill "$1-config.cmake" "$libdir/cmake/$1" "$2"
    fill "$1-config-version.cmake" "$libdir/cmake/$1" "$2"
}
package miopen "$miopen"
package fuseplan "$fuseplan"
echo "installed MIOpen interface $miopen and fuseplan $fuseplan in $destdir$prefix"
