//! The header against the Rust side: every prototype, every constant, every structure.
//!
//! The header is read by bindgen, which needs libclang. Without it the test says so and passes, unless
//! `REQUIRE_LIBCLANG` is set, as it is where submissions are tested.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;
use std::path::Path;

use fuseplan::{ActivationMode, BatchNormMode};

/// What bindgen makes of the headers; `None` without libclang.
fn bindings() -> Option<String> {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let generated = catch_unwind(|| {
        bindgen::Builder::default()
            .header_contents(
                "all.h",
                "#include <miopen/miopen.h>\n#include <miopen/fuseplan.h>\n#include <miopen/version.h>\n",
            )
            .clang_arg(format!("-I{}", include.display()))
            .allowlist_item("(miopen|fuseplan|MIOPEN|FUSEPLAN).*")
            .layout_tests(false)
            .formatter(bindgen::Formatter::None)
            .generate()
    });
    match generated {
        Ok(bindings) => Some(bindings.expect("the header is C").to_string()),
        Err(_) => {
            assert!(std::env::var_os("REQUIRE_LIBCLANG").is_none(), "libclang is required here");
            println!("ignored: libclang was not found, so the header was not compared");
            None
        }
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

#[test]
fn prototypes_are_the_headers() {
    let Some(bindings) = bindings() else { return };
    let declared = functions(&words(&bindings));
    let mut seen = BTreeSet::from(["miopenGetErrorString", "fuseplanGetLastErrorString"]);
    for prototype in MIOpen::prototypes() {
        let (parameters, result) =
            declared.get(prototype.name).unwrap_or_else(|| panic!("{} is not declared", prototype.name));
        let ours: Vec<String> = prototype.parameters.iter().map(|ty| plain(ty)).collect();
        assert_eq!(ours, *parameters, "{}", prototype.name);
        assert_eq!(result, "miopenStatus_t", "{}", prototype.name);
        assert!(seen.insert(prototype.name), "{} is exported twice", prototype.name);
    }
    for &name in MIOpen::unimplemented_functions() {
        let (_, result) = declared.get(name).unwrap_or_else(|| panic!("{name} is not declared"));
        assert_eq!(result, "miopenStatus_t", "{name}");
        assert!(seen.insert(name), "{name} is exported twice");
    }
    let missing: Vec<_> = declared.keys().filter(|name| !seen.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "declared and not exported: {missing:?}");
    assert!(seen.len() > 290, "{} functions", seen.len());
}

#[test]
fn constants_are_the_headers() {
    let Some(bindings) = bindings() else { return };
    let text = words(&bindings);
    let mut constants = BTreeMap::new();
    for part in text.split("pub const ").skip(1) {
        let part = part.split(" ; ").next().unwrap_or_default();
        if let Some((name, value)) = part.split_once(" = ") {
            let name = name.split(':').next().unwrap_or_default().trim();
            constants.insert(name.to_owned(), value.trim().to_owned());
        }
    }
    // bindgen puts the enumeration's name in front of its constants'.
    let constant = |name: &str| {
        let found = constants.iter().find(|(key, _)| *key == name || key.ends_with(&format!("_{name}")));
        found.and_then(|(_, value)| value.parse::<u32>().ok()).unwrap_or_else(|| panic!("no {name}"))
    };
    for mode in ActivationMode::ALL {
        assert_eq!(constant(&format!("miopenActivation{mode}")), mode.miopen_value(), "{mode}");
    }
    assert_eq!(constant("miopenBNSpatial"), BatchNormMode::Spatial as u32);
    assert_eq!(constant("miopenBNPerActivation"), BatchNormMode::PerActivation as u32);
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
        ("miopenTuningPolicySearchDbUpdate", 4),
        ("miopenProblemDirectionInference", 4),
        ("miopenTensorBias", 43),
        ("miopenTensorBatchnormBias", 58),
        ("miopenScalarBatchnormEpsilon", (1 << 31) | 3),
        ("MIOPEN_VERSION_MAJOR", 3),
    ] {
        assert_eq!(constant(name), value, "{name}");
    }
    let number = |part: &str| constant(&format!("FUSEPLAN_VERSION_{part}"));
    let version = format!("{}.{}.{}", number("MAJOR"), number("MINOR"), number("PATCH"));
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
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
}
