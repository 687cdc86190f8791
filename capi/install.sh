#!/usr/bin/env bash
# Builds the C library and installs it: libraries, headers, pkg-config file, CMake package.
#
#   capi/install.sh --prefix /usr/local [--libdir lib] [--destdir DIR] [--profile release]
#
# Everything that is installed finds its own place from where it lies, so the tree may be moved.
set -euo pipefail
cd "$(dirname "$0")/.."

prefix=/usr/local libdir=lib destdir= profile=release
while [ $# -gt 0 ]; do
    case $1 in
        --prefix) prefix=$2 ;;
        --libdir) libdir=$2 ;;
        --destdir) destdir=$2 ;;
        --profile) profile=$2 ;;
        *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
    shift 2
done

cargo build --locked --package miopen-capi --profile "$profile"
built=${CARGO_TARGET_DIR:-target}/$profile
lib=$destdir$prefix/$libdir include=$destdir$prefix/include

number() { sed -n "s/^#define MIOPEN_VERSION_$1 //p" capi/include/miopen/version.h; }
version=$(number MAJOR).$(number MINOR).$(number PATCH)
# The soname says 1; the rest of the file's name is the interface version behind it.
file=libMIOpen.so.1.$version

install -d "$lib/pkgconfig" "$lib/cmake/miopen" "$include/miopen"
install -m 755 "$built/libMIOpen.so" "$lib/$file"
ln -sf "$file" "$lib/libMIOpen.so.1"
ln -sf libMIOpen.so.1 "$lib/libMIOpen.so"
install -m 644 "$built/libMIOpen.a" "$lib/libMIOpen.a"
install -m 644 capi/include/miopen/*.h "$include/miopen/"
# Fills in a template that lies in a folder below the prefix, which it finds by going up from there.
fill() {
    local folder=$2
    local up
    up=$(sed 's|[^/]\{1,\}|..|g' <<<"$folder")
    sed "s|@version@|$version|; s|@libdir@|$libdir|; s|@up@|$up|" "capi/package/$1.in" >"$destdir$prefix/$folder/$1"
}
fill miopen.pc "$libdir/pkgconfig"
fill miopen-config.cmake "$libdir/cmake/miopen"
fill miopen-config-version.cmake "$libdir/cmake/miopen"
echo "installed MIOpen interface $version in $destdir$prefix"
