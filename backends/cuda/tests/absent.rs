//! CUDA that is missing, or is not what it should be, is an error in words and never a panic.

use std::path::Path;
use std::process::Command;

use fuseplan_api::*;
use fuseplan_cuda::CudaBackend;

/// Set in the process whose loader finds other libraries.
const CHILD: &str = "FUSEPLAN_TEST_CHILD";

/// Asks everything of the backend that can be asked and prints the answers.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    for note in CudaBackend.discover().notes {
        println!("note: {note}");
    }
    println!("open: {}", CudaBackend.open(0).unwrap_err());
    let target = CudaBackend.target("sm_90a").unwrap();
    println!("target: {}", target.toolchain);
    let x = TensorDescriptor::nchw(DataType::Half, [1, 2, 3, 4]).unwrap();
    let ops = vec![Op::ActivationForward { mode: ActivationMode::Relu }];
    let problem = Problem { input: x, output: x, ops, math: MathMode::Precise };
    for solver in CudaBackend.solvers().iter().filter(|solver| solver.applies(&problem, &target).is_ok()) {
        println!("compile: {}", solver.compile_preferred(&problem, &target).unwrap_err());
    }
}

/// What the child says when its loader looks into `folder` first, and `variables` are all that name others.
fn answers(folder: &Path, variables: &[(&str, &Path)]) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "child", "--nocapture"]).env(CHILD, "1").env("LD_LIBRARY_PATH", folder);
    for name in fuseplan_cuda::FOLDERS.map(Variable::name) {
        child.env_remove(name);
    }
    let child = child.envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success(), "{text}\n{}", String::from_utf8_lossy(&child.stderr));
    text
}

/// A library under this name, made of C.
fn library(folder: &Path, name: &str, text: &str) {
    let source = folder.join("library.c");
    std::fs::write(&source, text).unwrap();
    let status = Command::new("cc")
        .args(["-w", "-shared", "-o"])
        .arg(folder.join(name))
        .arg(&source)
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
#[ignore = "needs a machine without an NVIDIA GPU; `.ci/run test` runs it there"]
#[cfg(target_os = "linux")]
fn missing_and_foreign_libraries_are_errors() {
    assert!(CudaBackend.discover().devices.is_empty(), "this machine has an NVIDIA GPU");
    let folder = std::env::temp_dir().join(format!("fuseplan-absent-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let text = answers(&folder, &[]);
    assert!(
        text.contains("note: cuda: not available: the driver is not installed: libcuda.so.1: "),
        "{text}"
    );
    assert!(text.contains("open: cuda: not available: the driver is not installed"), "{text}");
    if text.contains("target: \n") {
        assert!(
            text.contains("note: cuda: not available: the run-time compiler NVRTC is not installed"),
            "{text}"
        );
        assert!(text.contains("compile: cuda: not available: the run-time compiler NVRTC"), "{text}");
    }
    // Libraries of the right names that lack functions.
    library(&folder, "libcuda.so.1", "int cuInit(int flags) { return 0; }");
    library(&folder, "libnvrtc.so", "int nvrtcVersion(int *major, int *minor) { return 1; }");
    let text = answers(&folder, &[]);
    assert!(text.contains("open: cuda: not available: libcuda has no function cuDeviceGetCount"), "{text}");
    assert!(
        text.contains("compile: cuda: not available: libnvrtc has no function nvrtcCreateProgram"),
        "{text}"
    );
    // Of two compilers the one whose code the driver can load, though it is the older.
    let version = |major| format!("int nvrtcVersion(int *a, int *b) {{ *a = {major}; *b = 4; return 0; }}");
    library(&folder, "libnvrtc.so.13", &version(13));
    library(&folder, "libnvrtc.so.12", &version(12));
    assert!(answers(&folder, &[]).contains("target: NVRTC 13.4"));
    library(&folder, "libcuda.so.1", "int cuDriverGetVersion(int *version) { *version = 12080; return 0; }");
    assert!(answers(&folder, &[]).contains("target: NVRTC 12.4"));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// NVIDIA's packages from PyPI in the active virtual environment: found behind a toolkit, of CUDA 13 before 12.
#[test]
#[ignore = "needs a machine without an NVIDIA GPU and without NVRTC; `.ci/run test` runs it there"]
#[cfg(target_os = "linux")]
fn a_compiler_of_a_virtual_environment_is_found_last() {
    let folder = std::env::temp_dir().join(format!("fuseplan-environment-{}", std::process::id()));
    let [empty, toolkit, environment] = ["empty", "toolkit", "environment"].map(|name| folder.join(name));
    let packages = environment.join("lib/python3.11/site-packages/nvidia");
    let places = [packages.join("cuda_nvrtc/lib"), packages.join("cu13/lib"), toolkit.join("lib64")];
    for path in places.iter().chain([&empty]) {
        std::fs::create_dir_all(path).unwrap();
    }
    let variables: &[(&str, &Path)] = &[("VIRTUAL_ENV", &environment), ("CUDA_PATH", &toolkit)];
    let text = answers(&empty, variables);
    assert!(CudaBackend.discover().devices.is_empty(), "this machine has an NVIDIA GPU");
    assert!(text.contains("target: \n"), "there is a compiler that comes before: {text}");
    let place = format!("of the Python environment VIRTUAL_ENV={}", environment.display());
    assert!(text.contains(&place) && text.contains("nvidia/cuda_nvrtc/lib"), "{text}");
    for (i, (place, file)) in
        places.iter().zip(["libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc.so"]).enumerate()
    {
        let version = format!("int nvrtcVersion(int *a, int *b) {{ *a = 1; *b = {i}; return 0; }}");
        library(place, file, &version);
        let text = answers(&empty, variables);
        assert!(text.contains(&format!("target: NVRTC 1.{i}\n")), "{text}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A set-user-id program must not load what the environment of its caller points to.
#[test]
#[ignore = "needs root and a machine without an NVIDIA GPU; `.ci/run test` runs it there"]
#[cfg(target_os = "linux")]
fn elevated_processes_load_no_compiler_that_the_environment_names() {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    assert!(CudaBackend.discover().devices.is_empty(), "this machine has an NVIDIA GPU");
    let folder = std::env::temp_dir().join(format!("fuseplan-elevated-{}", std::process::id()));
    let version = "int nvrtcVersion(int *a, int *b) { *a = 13; *b = 97; return 0; }";
    for place in ["", "lib64", "lib/python3/site-packages/nvidia/cu13/lib"] {
        fs::create_dir_all(folder.join(place)).unwrap();
        library(&folder.join(place), "libnvrtc.so.13", version);
        for path in folder.join(place).ancestors().take_while(|path| path.starts_with(&folder)) {
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
    }
    let program = folder.join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let run_as_nobody = |mode, variable| {
        fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
        let mut command = Command::new(&program);
        command.args(["--exact", "child", "--nocapture"]).env(CHILD, "1").current_dir("/");
        for name in fuseplan_cuda::FOLDERS.map(Variable::name) {
            command.env_remove(name);
        }
        let output = command.env(variable, &folder).uid(NOBODY).gid(NOBODY).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    for variable in fuseplan_cuda::FOLDERS.map(Variable::name) {
        let text = run_as_nobody(0o755, variable).expect("only root can run a program as somebody else");
        assert_eq!(
            fs::metadata(&program).unwrap().uid(),
            0,
            "only root can make a program that runs as root"
        );
        // Where the loader knows a compiler, toolkits are not looked into.
        assert!(text.contains("target: NVRTC 13.97") || variable != "FUSEPLAN_NVRTC_PATH", "{text}");
        let text = run_as_nobody(0o4755, variable).unwrap();
        assert!(text.contains("target: ") && !text.contains("NVRTC 13.97"), "{variable}: {text}");
    }
    fs::remove_dir_all(&folder).unwrap();
}
