//! What is said of compiles and executions, as a program hears it that gives the log a function.

use std::sync::{Arc, Mutex};

use fuseplan::log::{self, Format, Level};
use fuseplan::{CompileOptions, Handle};
use fuseplan_suite::sample::Sample;
use serde_json::Value;

// One test, since a process has one subscriber.
#[test]
fn compiles_and_executions_are_lines_of_json() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let heard = lines.clone();
    log::to(
        Format::Json,
        |level| level <= Level::DEBUG,
        move |line| heard.lock().unwrap().push(line.to_owned()),
    );
    let said = |target: &str| -> Vec<Value> {
        let parse = |line: String| {
            serde_json::from_str::<Value>(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
        };
        let all: Vec<Value> = std::mem::take(&mut *lines.lock().unwrap()).into_iter().map(parse).collect();
        all.into_iter().filter(|event| event["target"] == target).collect()
    };

    let (sample, handle) = (Sample::new(3).unwrap(), Handle::cpu());
    let compiled = sample.plan.compile(&handle).unwrap();
    let reference = CompileOptions::default().with_solver("cpu.reference.v1");
    sample.plan.compile_with(&handle, &reference).unwrap();
    sample.plan.compile(&handle).unwrap();
    let compiles = said("fuseplan::compile");
    let plan = Value::from(sample.plan.to_string());
    let solver = Value::from(compiled.info().solver);
    let expected = [("solver", &solver), ("solver", &"cpu.reference.v1".into()), ("memory", &solver)];
    assert_eq!(compiles.len(), expected.len(), "{compiles:?}");
    for (event, (cache, solver)) in compiles.iter().zip(expected) {
        assert_eq!((&event["level"], &event["message"]), (&"info".into(), &"compile".into()), "{event}");
        assert_eq!(
            (&event["cache"], &event["solver"], &event["plan"]),
            (&cache.into(), solver, &plan),
            "{event}"
        );
        assert!(
            event["microseconds"].as_f64().unwrap() > 0.0
                && event["device"].as_str().unwrap().starts_with("cpu 0")
        );
    }

    assert_eq!(sample.run(&compiled, &handle, &sample.args()).unwrap(), sample.expected());
    let executions = said("fuseplan::execute");
    let [event] = &executions[..] else { panic!("{executions:?}") };
    assert_eq!((&event["level"], &event["message"]), (&"debug".into(), &"execute".into()), "{event}");
    assert_eq!((&event["solver"], &event["plan"]), (&solver, &plan), "{event}");
    assert!(event["microseconds"].as_f64().unwrap() > 0.0, "{event}");
}
