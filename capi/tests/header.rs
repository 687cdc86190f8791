//! The headers of both C libraries against the Rust side: every prototype, every constant, every structure.
//!
//! The header is read by bindgen, which needs libclang. So tests that compare are ignored unless they are asked
//! for, as they are where submissions are tested.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;
use std::path::Path;

use fuseplan::{ActivationMode, BatchNormMode};

/// What includes every header of `libMIOpen.so.1`.
const MIOPEN: &str =
    "#include <miopen/miopen.h>\n#include <miopen/fuseplan.h>\n#include <miopen/version.h>\n";

/// What includes that of `libfuseplan.so.0`.
const FUSEPLAN: &str = "#include <fuseplan.h>\n";

/// What bindgen makes of the headers that a text includes.
fn bindings(header: &str) -> String {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let generated = catch_unwind(|| {
        bindgen::Builder::default()
            .header_contents("all.h", header)
            .clang_arg(format!("-I{}", include.display()))
            .allowlist_item("(miopen|fuseplan|MIOPEN|FUSEPLAN).*")
            .layout_tests(false)
            .formatter(bindgen::Formatter::None)
            .generate()
    });
    match generated {
        Ok(bindings) => bindings.expect("the header is C").to_string(),
        Err(_) => panic!("libclang was not found"),
    }
}

/// The words of generated Rust, one space between each two.
fn words(text: &str) -> String {
    let mut spaced = String::new();
    for c in text.chars() {
        match c {
            '(' | ')' | ',' | ';' | '{' | '}' | '*' => spaced.extend([' ', c, ' ']),
            c => spaced.push(c),
        }
    }
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Parameter types and return type of every function, by name.
fn functions(bindings: &str) -> BTreeMap<String, (Vec<String>, String)> {
    let mut found = BTreeMap::new();
    for part in bindings.split("pub fn ").skip(1) {
        let part = part.split(" ; ").next().unwrap_or_default();
        let (name, rest) = part.split_once(" ( ").expect("a parameter list");
        let (parameters, result) = rest.rsplit_once(" ) ").unwrap_or((rest, ""));
        let types = parameters.split(" , ").filter_map(|p| p.split_once(':'));
        let types = types.map(|(_, ty)| plain(ty)).collect();
        found.insert(name.to_owned(), (types, plain(result.trim_start_matches("->"))));
    }
    found
}

/// A type in bindgen's or this crate's words, in words that both share.
fn plain(ty: &str) -> String {
    let ty = ty.replace(":: std :: os :: raw :: ", "").replace("::std::os::raw::", "");
    let ty = ty.trim().trim_end_matches([',', ')']).trim().to_owned();
    if let Some(inner) = ty.strip_prefix("Out<").and_then(|rest| rest.strip_suffix('>')) {
        return format!("* mut {}", plain(inner));
    }
    if let Some(inner) = ty.strip_prefix("In<").and_then(|rest| rest.strip_suffix('>')) {
        return format!("* const {}", plain(inner));
    }
    match ty.as_str() {
        "Bool" => "bool".into(),
        "*const c_void" => "* const c_void".into(),
        "*mut c_void" => "* mut c_void".into(),
        _ => ty,
    }
}

/// One side's name of a function and its parameters' types.
type Prototype = (&'static str, &'static [&'static str]);

/// Compares exported functions with declared ones; gives the names of those exported, `others` among them, which return text
/// or have no parameters on this side.
fn compare(
    header: &str,
    status: &str,
    prototypes: impl Iterator<Item = Prototype>,
    others: &[&'static str],
) -> BTreeSet<&'static str> {
    let declared = functions(&words(&bindings(header)));
    let mut seen: BTreeSet<&str> = others.iter().copied().collect();
    for (name, parameters) in prototypes {
        let (expected, result) = declared.get(name).unwrap_or_else(|| panic!("{name} is not declared"));
        let ours: Vec<String> = parameters.iter().map(|ty| plain(ty)).collect();
        assert_eq!(ours, *expected, "{name}");
        assert_eq!(result, status, "{name}");
        assert!(seen.insert(name), "{name} is exported twice");
    }
    let missing: Vec<_> = declared.keys().filter(|name| !seen.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "declared and not exported: {missing:?}");
    seen
}

#[test]
#[ignore = "needs libclang; `.ci/run test` runs it"]
fn miopens_prototypes_are_the_headers() {
    let prototypes = MIOpen::prototypes().map(|prototype| (prototype.name, prototype.parameters));
    let mut others = vec!["miopenGetErrorString", "fuseplanGetLastErrorString"];
    let declared = functions(&words(&bindings(MIOPEN)));
    for &name in MIOpen::unimplemented_functions() {
        let (_, result) = declared.get(name).unwrap_or_else(|| panic!("{name} is not declared"));
        assert_eq!(result, "miopenStatus_t", "{name}");
        assert!(!others.contains(&name), "{name} is exported twice");
        others.push(name);
    }
    let seen = compare(MIOPEN, "miopenStatus_t", prototypes, &others);
    assert!(seen.len() > 290, "{} functions", seen.len());
}

#[test]
#[ignore = "needs libclang; `.ci/run test` runs it"]
fn fuseplans_prototypes_are_the_headers() {
    let prototypes = fuseplan_c::prototypes().map(|prototype| (prototype.name, prototype.parameters));
    let others = ["fuseplan_last_error", "fuseplan_status_string", "fuseplan_version"];
    let seen = compare(FUSEPLAN, "fuseplan_status_t", prototypes, &others);
    assert!(seen.len() >= 40, "{} functions", seen.len());
}

/// The numbers that a header defines and enumerates, by name; bindgen puts an enumeration's name in front of its constants'.
fn constants(header: &str) -> BTreeMap<String, String> {
    let text = words(&bindings(header));
    let mut constants = BTreeMap::new();
    for part in text.split("pub const ").skip(1) {
        let part = part.split(" ; ").next().unwrap_or_default();
        if let Some((name, value)) = part.split_once(" = ") {
            let name = name.split(':').next().unwrap_or_default().trim();
            constants.insert(name.to_owned(), value.replace(' ', ""));
        }
    }
    constants
}

/// The constant of this name, of whatever enumeration.
fn constant(constants: &BTreeMap<String, String>, name: &str) -> i64 {
    let found = constants.iter().find(|(key, _)| *key == name || key.ends_with(&format!("_t_{name}")));
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or_else(|| panic!("no {name}"))
}

/// The version that a header has.
fn version(constants: &BTreeMap<String, String>) -> String {
    let number = |part: &str| constant(constants, &format!("FUSEPLAN_VERSION_{part}"));
    format!("{}.{}.{}", number("MAJOR"), number("MINOR"), number("PATCH"))
}

#[test]
#[ignore = "needs libclang; `.ci/run test` runs it"]
fn fuseplans_constants_are_the_headers() {
    let constants = constants(FUSEPLAN);
    let named = constants.iter().filter(|(name, _)| name.starts_with("fuseplan_activation_t_"));
    let named: BTreeSet<u32> = named.map(|(_, value)| value.parse().unwrap()).collect();
    assert_eq!(named, ActivationMode::ALL.map(|mode| mode.miopen_value()).into());
    for (name, value) in [
        ("FUSEPLAN_SUCCESS", 0),
        ("FUSEPLAN_INVALID_ARGUMENT", 1),
        ("FUSEPLAN_UNSUPPORTED", 2),
        ("FUSEPLAN_UNAVAILABLE", 3),
        ("FUSEPLAN_OUT_OF_MEMORY", 4),
        ("FUSEPLAN_INTERNAL_ERROR", 5),
        ("FUSEPLAN_F16", 0),
        ("FUSEPLAN_F32", 1),
        ("FUSEPLAN_BF16", 2),
        ("FUSEPLAN_CHANNELS_FIRST", 0),
        ("FUSEPLAN_CHANNELS_LAST", 1),
        ("FUSEPLAN_BLOCKS_OF_4", 2),
        ("FUSEPLAN_BLOCKS_OF_8", 3),
        ("FUSEPLAN_BLOCKS_OF_16", 4),
        ("FUSEPLAN_RELU", ActivationMode::Relu.miopen_value().into()),
        ("FUSEPLAN_MISH", ActivationMode::Mish.miopen_value().into()),
        ("FUSEPLAN_BATCH_NORM_PER_ACTIVATION", BatchNormMode::PerActivation as i64),
        ("FUSEPLAN_BATCH_NORM_SPATIAL", BatchNormMode::Spatial as i64),
        ("FUSEPLAN_FIND", 1),
        ("FUSEPLAN_ALLOW_TF32", 2),
        ("FUSEPLAN_STRICT", 4),
        ("FUSEPLAN_CURRENT_DEVICE", -1),
        ("FUSEPLAN_MAX_RANK", fuseplan::TensorDescriptor::MAX_RANK as i64),
        ("FUSEPLAN_MAX_LAYOUTS", fuseplan::TensorLayout::all_of_rank(4).len() as i64),
    ] {
        assert_eq!(constant(&constants, name), value, "{name}");
    }
    assert_eq!(version(&constants), env!("CARGO_PKG_VERSION"));
}

#[test]
#[ignore = "needs libclang; `.ci/run test` runs it"]
fn miopens_constants_are_the_headers() {
    let constants = constants(MIOPEN);
    let constant = |name: &str| constant(&constants, name);
    for mode in ActivationMode::ALL {
        // MIOpen writes its names in capitals.
        let own = format!("fuseplanActivation{mode:?}");
        let name = if mode.miopen_value() < 1000 { format!("miopenActivation{mode}") } else { own };
        assert_eq!(constant(&name), i64::from(mode.miopen_value()), "{mode}");
    }
    assert_eq!(constant("miopenBNSpatial"), BatchNormMode::Spatial as i64);
    assert_eq!(constant("miopenBNPerActivation"), BatchNormMode::PerActivation as i64);
    for (name, value) in [
        ("miopenStatusBadParm", 3),
        ("miopenStatusUnsupportedOp", 8),
        ("miopenHalf", 0),
        ("miopenFloat", 1),
        ("miopenBFloat16", 5),
        ("miopenDouble", 6),
        ("miopenInt64", 9),
        ("miopenTensorNHWC", 1),
        ("miopenTensorNDHWC", 8),
        ("miopenConvolutionFwdAlgoWinograd", 3),
        ("miopenConvolutionFwdAlgoImplicitGEMM", 5),
        ("fuseplanMathPrecise", 0),
        ("fuseplanMathAllowTf32", 1),
        ("fuseplanMathStrict", 2),
        ("miopenTuningPolicySearchDbUpdate", 4),
        ("miopenProblemDirectionInference", 4),
        ("miopenTensorBias", 43),
        ("miopenTensorBatchnormBias", 58),
        ("miopenScalarBatchnormEpsilon", (1 << 31) | 3),
        ("MIOPEN_VERSION_MAJOR", 3),
    ] {
        assert_eq!(constant(name), value, "{name}");
    }
    assert_eq!(version(&constants), env!("CARGO_PKG_VERSION"));
}

#[test]
fn structures_have_cs_layout() {
    // As C lays them out on 64-bit machines: float, padding, size_t and so on.
    assert_eq!(size_of::<MIOpen::abi::miopenConvAlgoPerf_t>(), 16);
    assert_eq!(std::mem::offset_of!(MIOpen::abi::miopenConvAlgoPerf_t, memory), 8);
    assert_eq!(size_of::<MIOpen::abi::miopenConvSolution_t>(), 32);
    assert_eq!(std::mem::offset_of!(MIOpen::abi::miopenConvSolution_t, algorithm), 24);
    assert_eq!(size_of::<MIOpen::abi::miopenTensorArgument_t>(), 24);
    assert_eq!(std::mem::offset_of!(MIOpen::abi::miopenTensorArgument_t, descriptor), 8);
    assert_eq!(std::mem::offset_of!(MIOpen::abi::miopenTensorArgument_t, buffer), 16);
    assert_eq!(size_of::<MIOpen::miopenHandle_t>(), size_of::<*const u8>());
    assert_eq!(size_of::<fuseplan_c::fuseplan_handle_t>(), size_of::<*const u8>());
}
