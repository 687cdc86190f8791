//! What there is: devices, and what is supported on them.

use fuseplan::{
    device::{Target, backends, discover},
    error::BackendError,
    support::Table,
};
use serde_json::{Map, Value, json};

use crate::cli::SupportedOptions;
use crate::failure::Failure;
use crate::miopen::{self, Comparison};
use crate::output::Output;

/// Prints the table of what is supported: of one backend, or of every backend that has a device.
pub(crate) fn supported_by(options: &SupportedOptions, output: &Output) -> Result<(), Failure> {
    for (index, target) in targets(options)?.into_iter().enumerate() {
        let table = Table::of_target(&target)?;
        if index > 0 {
            output.line("")?;
        }
        if !output.is_json() {
            output.line(&table)?;
        }
        for (row, cells) in table.rows.iter().zip(table.cells()) {
            let mut members: Map<String, Value> = Table::COLUMNS
                .iter()
                .zip(cells)
                .map(|(column, cell)| (column.replace(' ', "_"), cell.into()))
                .collect();
            members.insert("backend".into(), row.backend.into());
            members.insert("target".into(), table.target.clone().into());
            output.object("supported", Value::Object(members))?;
        }
        if let Some(comparison) = miopen::beside(&table, &target) {
            compare(&comparison, output)?;
        }
    }
    Ok(())
}

/// Prints what of it MIOpen fuses too.
fn compare(comparison: &Comparison, output: &Output) -> Result<(), Failure> {
    if !output.is_json() {
        output.line("")?;
        return Ok(output.line(comparison)?);
    }
    for row in &comparison.rows {
        let members = json!({
            "target": comparison.target,
            "operators": row.operators,
            "data_types": row.data_types.iter().map(ToString::to_string).collect::<Value>(),
            "both": row.both,
            "fuseplan_alone": row.fuseplan,
            "miopen_alone": row.miopen,
        });
        output.object("beside_miopen", members)?;
    }
    Ok(())
}

/// What is asked about: an architecture, a backend's first device, or the first of every backend that has one.
fn targets(options: &SupportedOptions) -> Result<Vec<Target>, Failure> {
    let no_device = |error: BackendError| Failure::NoDevice(error.to_string());
    if let (Some(backend), Some(arch)) = (&options.backend, &options.arch) {
        return Ok(vec![Target::new(backend, arch).map_err(no_device)?]);
    }
    let asked = |name: &str| options.backend.as_deref().is_none_or(|backend| backend == name);
    if let Some(backend) = &options.backend {
        let found = discover(backend).map_err(no_device)?;
        if found.devices.is_empty() {
            let notes = found.notes.join("; ");
            let text =
                format!("{backend} has no device on this machine: {notes}; --arch names an architecture");
            return Err(Failure::NoDevice(text));
        }
    }
    let mut targets = Vec::new();
    for backend in backends().iter().filter(|backend| asked(backend.name())) {
        if let Some(device) = backend.discover().devices.first() {
            targets.push(Target::new(backend.name(), &device.arch).map_err(no_device)?);
        }
    }
    Ok(targets)
}

/// Prints the devices of this machine by backend, with what the look for them noted.
pub(crate) fn devices(output: &Output) -> Result<(), Failure> {
    for backend in backends() {
        let name = backend.name();
        let discovery = discover(name).map_err(|error| Failure::NoDevice(error.to_string()))?;
        if discovery.devices.is_empty() {
            output.line(format!("{name}: no device"))?;
        }
        for device in &discovery.devices {
            output.line(format!("{name} {}: {}", device.ordinal, device.name))?;
            output.line(format!("  architecture   {}", device.arch))?;
            output.line(format!("  compute units  {} of {} lanes", device.compute_units, device.lanes))?;
            output.line(format!("  local memory   {} KiB", device.local_memory >> 10))?;
            output.line(format!("  memory         {:.1} GiB", device.memory as f64 / (1u64 << 30) as f64))?;
            // What was looked for, and where, is in a note.
            let toolchain = if device.toolchain.is_empty() { "none" } else { &device.toolchain };
            output.line(format!("  toolchain      {toolchain}"))?;
            output.object(
                "device",
                json!({
                    "backend": name,
                    "ordinal": device.ordinal,
                    "name": device.name,
                    "arch": device.arch,
                    "toolchain": device.toolchain,
                    "compute_units": device.compute_units,
                    "lanes": device.lanes,
                    "local_memory": device.local_memory,
                    "memory": device.memory,
                }),
            )?;
        }
        for note in &discovery.notes {
            output.line(format!("  note           {note}"))?;
            output.object("note", json!({ "backend": name, "text": note }))?;
        }
    }
    Ok(())
}
