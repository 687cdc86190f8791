//! The matrix instruction as a function of the text.

use std::fmt::Write;

use fuseplan_api::DataType;

/// Where a product's rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rows {
    InMemory,
    InRegisters,
}

/// The text's function `wgmma`: one instruction, which accumulates 64 rows times the tile's columns over 32 bytes of the
/// depth, or with columns innermost. f32 factors are TF32's, whose operands have their depth innermost and no word to say otherwise.
/// Rows in registers have none either.
pub(super) fn wgmma(width: usize, data_type: DataType, rows: Rows, columns_innermost: bool) -> String {
    let major = match (rows, columns_innermost) {
        (Rows::InRegisters, false) => ", 0",
        (Rows::InRegisters, true) => ", 1",
        (Rows::InMemory, false) => ", 0, 0",
        (Rows::InMemory, true) => ", 0, 1",
    };
    let (element, name, depth, major) = match data_type {
        DataType::Half => ("f16", "f16", 16, major),
        DataType::BFloat16 => ("bf16", "bf16", 16, major),
        DataType::Float => ("float", "tf32", 8, ""),
        DataType::Double | DataType::Int8 => unreachable!("a constraint refuses {data_type}"),
    };
    let count = width / 2;
    let (mut registers, mut operands) = (String::new(), String::new());
    for i in 0..count {
        let separator = if i == 0 { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(registers, "{separator}%{i}");
        let _ = write!(operands, "{separator}\"+f\"(acc[{i}])");
    }
    let (parameter, rows, behind) = match rows {
        Rows::InMemory => ("unsigned long long rows", format!("%{count}"), "\"l\"(rows)".to_owned()),
        Rows::InRegisters => {
            let at = |i| format!("%{}", count + i);
            let values: Vec<_> = (0..4).map(|i| format!("\"r\"(rows[{i}])")).collect();
            let names = [0, 1, 2, 3].map(at).join(", ");
            ("const unsigned (&rows)[4]", format!("{{{names}}}"), values.join(", "))
        }
    };
    let taken = count + behind.matches("\"(").count();
    format!(
        "DEVICE void wgmma(float (&acc)[{count}], {parameter}, unsigned long long columns, bool add, {element} = {element}()) {{\n  \
         asm volatile(\"{{\\n.reg .pred add;\\nsetp.ne.b32 add, %{}, 0;\\n\"\n    \
         \"wgmma.mma_async.sync.aligned.m64n{width}k{depth}.f32.{name}.{name} {{{registers}}}, {rows}, %{taken}, add, 1, 1{major};\\n}}\"\n    \
         : {operands} : {behind}, \"l\"(columns), \"r\"((int)add));\n}}\n",
        taken + 1,
    )
}
