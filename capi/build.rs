//! Links a C library: with its soname, and with the versions that `exports.map` gives its symbols, which are AMD's for
//! libMIOpen; one library may have the symbols of both. `dlclose` leaves it in memory, where its threads, and destructors of
//! threads that called it, go on running its code.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rustc-check-cfg=cfg(versioned_symbols)");
    let var = |name: &str| env::var(name).unwrap_or_default();
    if var("CARGO_CFG_TARGET_OS") != "linux" {
        return;
    }
    let (soname, maps): (_, &[_]) = match var("CARGO_PKG_NAME").as_str() {
        "fuseplan-capi" => ("libfuseplan.so.0", &["exports.map"]),
        "capi-both" => ("libMIOpen.so.1", &["../exports.map", "../fuseplan/exports.map"]),
        _ => ("libMIOpen.so.1", &["exports.map"]),
    };
    let is_shared = env::var_os("CARGO_FEATURE_SONAME").is_some();
    let link = |argument: &str| {
        if is_shared {
            println!("cargo:rustc-cdylib-link-arg={argument}");
        }
    };
    link(&format!("-Wl,-soname,{soname}"));
    link("-Wl,-z,nodelete");
    // rustc hands the linker a version script of its own, beside which GNU ld accepts no second one; the
    // lld that comes with the toolchain does.
    let Some(lld) = bundled_lld(&var("RUSTC"), &var("HOST")) else {
        println!("cargo:warning=the toolchain has no lld: the C libraries get no symbol versions");
        return;
    };
    let map = Path::new(&var("OUT_DIR")).join("exports.map");
    let mut versions = String::new();
    for from in maps {
        println!("cargo:rerun-if-changed={from}");
        let from = Path::new(&var("CARGO_MANIFEST_DIR")).join(from);
        versions += &fs::read_to_string(&from).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    }
    fs::write(&map, versions).unwrap_or_else(|error| panic!("{}: {error}", map.display()));
    link(&format!("-B{}", lld.display()));
    link("-fuse-ld=lld");
    link(&format!("-Wl,--version-script={}", map.display()));
    println!("cargo:rustc-cfg=versioned_symbols");
}

/// The toolchain's folder in which a C compiler finds `ld.lld`.
fn bundled_lld(rustc: &str, host: &str) -> Option<PathBuf> {
    let sysroot = Command::new(rustc).args(["--print", "sysroot"]).output().ok()?;
    let sysroot = PathBuf::from(String::from_utf8(sysroot.stdout).ok()?.trim());
    let folder = sysroot.join("lib/rustlib").join(host).join("bin/gcc-ld");
    folder.join("ld.lld").exists().then_some(folder)
}
