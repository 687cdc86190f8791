#!/usr/bin/env bash
# Unpacks Debian packages with everything that they depend on, their C library included, into a folder of their
# own: nothing is installed, and no rights are needed.
#
#   tests/rocm/root.sh DIR SUITE[,SUITE…] PACKAGE…
#
# DIR/root is the tree, and DIR/run PROGRAM runs a program with its loader and libraries, so that a program built
# here can load libraries that need a newer C library. Fails where the packages are not to be had.
set -euo pipefail
mkdir -p "$1"
dir=$(cd "$1" && pwd) suites=${2//,/ }
shift 2
apt=$dir/apt archive=${DEBIAN_ARCHIVE:-http://deb.debian.org/debian}
rm -rf "$apt" "$dir/root" "$dir/run"
mkdir -p "$apt"/etc/{apt.conf.d,preferences.d,trusted.gpg.d} "$apt"/state/lists/partial \
    "$apt"/cache/archives/partial "$dir/root"
: >"$apt/status"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
for suite in $suites; do
    echo "deb [signed-by=$keys] $archive $suite main"
done >"$apt/etc/sources.list"
# An empty status file: nothing counts as installed. Releases of moving suites outlive their dates here and there.
cat >"$apt/apt.conf" <<EOF
Dir "$apt";
Dir::Etc "etc";
Dir::Etc::SourceParts "-";
Dir::State "state";
Dir::State::Status "$apt/status";
Dir::Cache "cache";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Install-Recommends "false";
APT::Default-Release "${suites##* }";
APT::Sandbox::User "";
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "20";
EOF
export APT_CONFIG=$apt/apt.conf
apt-get -qq update
apt-get -qq -y --download-only install "$@" >/dev/null
for package in "$apt"/cache/archives/*.deb; do
    dpkg-deb --extract "$package" "$dir/root"
done
rm -rf "$apt"
loader=$(find "$dir/root" -name ld-linux-x86-64.so.2 -type f -print -quit)
folders=$dir/root/usr/lib/x86_64-linux-gnu:$dir/root/lib/x86_64-linux-gnu:$dir/root/usr/lib/llvm-rocm/lib
cat >"$dir/run" <<EOF
#!/bin/sh
exec "$loader" --library-path "$folders" "\$@"
EOF
chmod +x "$dir/run"
