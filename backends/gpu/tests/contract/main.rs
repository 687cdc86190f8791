//! The contract of kernel text sees what is wrong: on texts that are made up.

mod checker;

use checker::Contract;

const FILE: &str = "\
// A kernel.
// needs macros: DEVICE
// needs constants: TILE, STAGES
// needs sizes: out_w
// needs types: Shape
// needs functions: helper

constexpr int HALF = TILE / 2, ROWS = STAGES == 2 ? 1 : 2;
template <int WIDTH> DEVICE int work(const Shape& s) {
  constexpr int LOCAL = 3; // UNUSED, in a comment
  int part = HALF * s.out_w;
  asm(\"UNUSED\");
  return part < ROWS ? helper(part) : WIDTH + LOCAL;
}
";

const GENERATED: &str = "\
#define DEVICE __device__
constexpr int TILE{8};
constexpr int STAGES{2};
struct Shape {
  Size out_w;
};
DEVICE int helper(int v) { return v; }
DEVICE int part(int v) { return v; }
";

/// What is wrong where `change` is made to what stands before the file, or to the file.
fn complaints(generated: &str, file: &str) -> Vec<String> {
    let mut contract = Contract::new([("file.cuh".to_string(), file.to_string())]);
    contract.look_at("a kernel", &format!("{generated}\n{file}"));
    contract.complaints()
}

#[test]
fn what_is_listed_given_and_used_is_right() {
    assert_eq!(complaints(GENERATED, FILE), Vec::<String>::new());
}

#[test]
fn what_is_listed_and_not_given_is_wrong() {
    for (name, given) in [
        ("STAGES", "constexpr int STAGES{2};"),
        ("out_w", "Size out_w;"),
        ("helper", "DEVICE int helper(int v) { return v; }"),
    ] {
        let said = complaints(&GENERATED.replace(given, ""), FILE).join("\n");
        assert!(said.contains(&format!("file.cuh needs {name}, which nothing before it gives")), "{said}");
    }
}

#[test]
fn what_is_given_and_not_needed_is_wrong() {
    let said = complaints(
        &GENERATED.replace("constexpr int TILE", "constexpr int UNUSED{1};\nconstexpr int TILE"),
        FILE,
    );
    assert_eq!(said, ["UNUSED is given and nothing in a kernel needs it"]);
    let said = complaints(&GENERATED.replace("  Size out_w;", "  Size out_w;\n  Divisor plane;"), FILE);
    assert_eq!(said, ["plane is given and nothing in a kernel needs it"]);
}

#[test]
fn what_is_used_and_not_listed_is_wrong() {
    for (name, listed) in
        [("TILE", "TILE, "), ("out_w", "// needs sizes: out_w\n"), ("helper", "// needs functions: helper\n")]
    {
        let said = complaints(GENERATED, &FILE.replacen(listed, "", 1)).join("\n");
        assert!(said.contains(&format!("file.cuh uses {name} and does not list it")), "{said}");
        assert!(said.contains("// needs constants: STAGES, TILE\n// needs sizes: out_w\n"), "{said}");
    }
}

#[test]
fn what_is_listed_and_not_used_is_wrong() {
    let said = complaints(
        GENERATED,
        &FILE.replace("// needs functions: helper", "// needs functions: helper, part"),
    );
    assert_eq!(said, ["file.cuh lists part and does not use it"]);
}

#[test]
fn a_file_in_no_kernel_is_wrong() {
    let mut contract = Contract::new([("file.cuh".to_string(), FILE.to_string())]);
    contract.look_at("a kernel", GENERATED);
    assert_eq!(contract.complaints(), ["file.cuh is in no kernel that was looked at"]);
}
