//! What there is: devices, and what is supported on them.

use fuseplan::{SupportTable, Target, backends, discover, supported, supported_on};
use serde_json::{Map, Value, json};

use crate::cli::SupportedOptions;
use crate::failure::Failure;
use crate::output::Output;

/// Prints the table of what is supported: of one backend, or of every backend that has a device.
pub(crate) fn supported_by(options: &SupportedOptions, output: &Output) -> Result<(), Failure> {
    for (index, table) in tables(options)?.into_iter().enumerate() {
        if index > 0 {
            output.line("")?;
        }
        if !output.is_json() {
            output.line(&table)?;
        }
        for (row, cells) in table.rows.iter().zip(table.cells()) {
            let mut members: Map<String, Value> = SupportTable::COLUMNS
                .iter()
                .zip(cells)
                .map(|(column, cell)| (column.replace(' ', "_"), cell.into()))
                .collect();
            members.insert("backend".into(), row.backend.into());
            members.insert("target".into(), table.target.clone().into());
            output.object("supported", Value::Object(members))?;
        }
    }
    Ok(())
}

fn tables(options: &SupportedOptions) -> Result<Vec<SupportTable>, Failure> {
    if let (Some(backend), Some(arch)) = (&options.backend, &options.arch) {
        let target = Target::new(backend, arch).map_err(|error| Failure::NoDevice(error.to_string()))?;
        return Ok(vec![supported_on(&target)?]);
    }
    if let Some(backend) = &options.backend {
        return Ok(vec![supported(backend)?]);
    }
    let mut tables = Vec::new();
    for backend in backends().iter().filter(|backend| !backend.discover().devices.is_empty()) {
        tables.push(supported(backend.name())?);
    }
    Ok(tables)
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
            output.line(format!("  toolchain      {}", device.toolchain))?;
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
