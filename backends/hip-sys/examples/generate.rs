//! Writes `src/hip.rs` and `src/hiprtc.rs` from HIP's headers.
//!
//! ```sh
//! cargo run -p fuseplan-hip-sys --example generate -- /opt/rocm/include          # writes
//! cargo run -p fuseplan-hip-sys --example generate -- /opt/rocm/include --check  # fails if that changes them
//! ```
//!
//! Needs libclang (`LIBCLANG_PATH` says where) and rustfmt. Further flags are given to clang.

use std::collections::HashSet;
use std::error::Error;
use std::path::Path;

/// What the backend calls of the runtime. All of it is there from HIP 6.0 on.
const HIP: [&str; 40] = [
    "hipDeviceGetAttribute",
    "hipEventCreateWithFlags",
    "hipEventDestroy",
    "hipEventElapsedTime",
    "hipEventRecord",
    "hipEventSynchronize",
    "hipFree",
    "hipFuncGetAttribute",
    "hipGetDevice",
    "hipGetDeviceCount",
    "hipGetDevicePropertiesR0600",
    "hipGetErrorName",
    "hipGetErrorString",
    "hipGraphAddChildGraphNode",
    "hipGraphDestroy",
    "hipGraphExecChildGraphNodeSetParams",
    "hipGraphExecDestroy",
    "hipGraphInstantiateWithFlags",
    "hipGraphLaunch",
    "hipGraphRetainUserObject",
    "hipInit",
    "hipMalloc",
    "hipMemcpyAsync",
    "hipMemsetAsync",
    "hipModuleGetFunction",
    "hipModuleLaunchKernel",
    "hipModuleLoadData",
    "hipModuleUnload",
    "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor",
    "hipRuntimeGetVersion",
    "hipSetDevice",
    "hipStreamBeginCapture",
    "hipStreamCreateWithFlags",
    "hipStreamDestroy",
    "hipStreamEndCapture",
    "hipStreamGetCaptureInfo_v2",
    "hipStreamSynchronize",
    "hipThreadExchangeStreamCaptureMode",
    "hipUserObjectCreate",
    "hipUserObjectRelease",
];

/// A bit field that nobody reads; bindgen would give it hundreds of lines.
const ARCH: &str =
    "#[repr(C)]\n#[derive(Debug, Copy, Clone)]\npub struct hipDeviceArch_t(pub ::std::os::raw::c_uint);";

/// What the backend calls of the compiler.
const HIPRTC: [&str; 8] = [
    "hiprtcCompileProgram",
    "hiprtcCreateProgram",
    "hiprtcDestroyProgram",
    "hiprtcGetCode",
    "hiprtcGetCodeSize",
    "hiprtcGetErrorString",
    "hiprtcGetProgramLog",
    "hiprtcGetProgramLogSize",
];

/// The first words of a file, which end in the version of the headers.
const TITLE: &str = "// Made by examples/generate.rs from the headers of HIP";

/// The version in HIP's headers.
fn version(include: &str) -> Result<String, Box<dyn Error>> {
    let text = std::fs::read_to_string(Path::new(include).join("hip/hip_version.h"))?;
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix("#define ")?.strip_prefix(name));
        line.map(str::trim).ok_or(format!("hip/hip_version.h has no {name}"))
    };
    Ok(format!("{}.{}", number("HIP_VERSION_MAJOR")?, number("HIP_VERSION_MINOR")?))
}

/// Whether two files agree. Between versions one may have more constants than the other, and pointers may be
/// to constants or not; everything else is the same, in the same order.
fn agree(ours: &str, theirs: &str) -> bool {
    fn parts(text: &str) -> (String, HashSet<String>) {
        let (mut rest, mut constants, mut constant) = (String::new(), HashSet::new(), String::new());
        for line in text.lines().skip(1).map(|line| line.replace("*mut ", "*const ")) {
            if constant.is_empty() && !line.trim_start().starts_with("pub const ") {
                rest += line.trim();
                rest += "\n";
                continue;
            }
            constant += line.trim();
            if constant.ends_with(';') {
                constants.insert(std::mem::take(&mut constant));
            }
        }
        (rest, constants)
    }
    let first = |text: &str| text.lines().next().unwrap_or_default().to_string();
    let ((a, a_constants), (b, b_constants)) = (parts(ours), parts(theirs));
    let nested = a_constants.is_subset(&b_constants) || b_constants.is_subset(&a_constants);
    ours == theirs || first(ours) != first(theirs) && a == b && nested
}

fn generate(
    header: &str,
    library: &str,
    functions: &[&str],
    include: &str,
    flags: &[String],
) -> Result<String, Box<dyn Error>> {
    let rustfmt = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rustfmt.toml");
    let builder = bindgen::Builder::default()
        .header_contents("all.h", &format!("#include <hip/{header}>\n"))
        .clang_args(["-D__HIP_PLATFORM_AMD__", "-I", include])
        .clang_args(flags)
        .dynamic_library_name(library)
        .dynamic_link_require_all(true)
        .default_enum_style(bindgen::EnumVariation::NewType { is_bitfield: false, is_global: false })
        .prepend_enum_name(false)
        .generate_comments(false)
        .layout_tests(false)
        .blocklist_type("hipDeviceArch_t")
        .rust_target("1.85".parse()?)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .disable_header_comment()
        .raw_line(format!("{TITLE} {}; not to be edited.", version(include)?))
        .rustfmt_configuration_file(Some(rustfmt.canonicalize()?));
    let builder = match library {
        "Hip" => builder.raw_line(ARCH),
        _ => builder,
    };
    let builder =
        functions.iter().fold(builder, |builder, name| builder.allowlist_function(format!("^{name}$")));
    Ok(builder.generate()?.to_string())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let before = arguments.len();
    arguments.retain(|argument| argument != "--check");
    let check = arguments.len() < before;
    let (include, flags) =
        arguments.split_first().ok_or("usage: generate <include folder> [--check] [clang flag…]")?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (file, text) in [
        ("hip.rs", generate("hip_runtime_api.h", "Hip", &HIP, include, flags)?),
        ("hiprtc.rs", generate("hiprtc.h", "Hiprtc", &HIPRTC, include, flags)?),
    ] {
        let path = source.join(file);
        if !check {
            std::fs::write(path, text)?;
        } else if !agree(&std::fs::read_to_string(path)?, &text) {
            return Err(format!("src/{file} does not agree with these headers").into());
        } else {
            println!("src/{file} agrees with the headers of HIP {}", version(include)?);
        }
    }
    Ok(())
}
