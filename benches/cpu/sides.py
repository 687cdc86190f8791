"""Who is compared: installing and building every side, and talking to its server."""

import dataclasses
import os
import pathlib
import subprocess
import sys

BENCHES = pathlib.Path(__file__).resolve().parent.parent
REPOSITORY = BENCHES.parent

# The two packaged builds of oneDNN: the newest release (CPU runtime SYCL over TBB) and the last one that was
# packaged with OpenMP, which has the lower cost of a call. They share file names, so each has its own environment.
ENVIRONMENTS = {
    "main": ["numpy", "onnx", "onnxruntime", "onednn", "onednn-devel"],
    "openmp": ["onednn-cpu-gomp", "onednn-devel-cpu-gomp"],
}


@dataclasses.dataclass(frozen=True)
class Side:
    """One implementation with one way of using it."""

    name: str
    server: str
    layout: str = "nchw"
    path: str = "direct"

    def setup(self, dtype, weights, data):
        return f"dtype={dtype} layout={self.layout} path={self.path} weights={weights} data={data}"


SIDES = [
    Side("peak", "peak"),
    Side("ours_nchw", "ours"),
    Side("ours_nhwc", "ours", "nhwc"),
    Side("onednn_nchw_direct", "onednn"),
    Side("onednn_nchw_reorder", "onednn", path="reorder"),
    Side("onednn_nhwc", "onednn", "nhwc"),
    Side("onednn_any", "onednn", "any"),
    Side("onednn-omp_nchw_direct", "onednn-omp"),
    Side("onednn-omp_nchw_reorder", "onednn-omp", path="reorder"),
    Side("onednn-omp_nhwc", "onednn-omp", "nhwc"),
    Side("onednn-omp_any", "onednn-omp", "any"),
    Side("onnxruntime_nchw", "onnxruntime"),
]


def python(build, environment="main"):
    return build / environment / "bin" / "python"


def prepare_environments(build):
    """Creates the virtual environments with the peers in `build`, unless they are there."""
    for name, packages in ENVIRONMENTS.items():
        done = build / name / "complete"
        if not done.exists():
            print(f"installing {' '.join(packages)}", file=sys.stderr)
            subprocess.run([sys.executable, "-m", "venv", "--clear", build / name], check=True)
            subprocess.run([python(build, name), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                            *packages], check=True)
            done.touch()


def build_servers(build):
    """Compiles the peers' servers, where they are not up to date, and ours; returns the path of ours."""
    onednn, peak = BENCHES / "peers" / "onednn_server.cpp", BENCHES / "peers" / "fma_peak.cpp"
    for name, environment in ("onednn", "main"), ("onednn-omp", "openmp"):
        home = build / environment
        # oneDNN's own dependencies are found at run time, in the same folder.
        compile_peer(onednn, build / name, "-O2", f"-I{home}/include", f"-L{home}/lib", "-ldnnl",
                     f"-Wl,-rpath,{home}/lib", "-Wl,--allow-shlib-undefined")
    compile_peer(peak, build / "peak", "-O3", "-march=native", "-ffp-contract=fast", "-pthread")
    subprocess.run(["cargo", "build", "--quiet", "--release", "--package", "fuseplan-bench"], check=True,
                   cwd=REPOSITORY)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    return target / "release" / "fuseplan-bench"


def compile_peer(source, program, *flags):
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        subprocess.run([os.environ.get("CXX", "c++"), "-std=c++17", "-Wall", "-Wextra", source, "-o", program, *flags],
                       check=True)


class Server:
    """A server process for one side and number of threads; started at its first command, again if it died."""

    def __init__(self, side, threads, build, ours, cores, real_time):
        self.cores, self.real_time, self.process = cores[:threads], real_time, None
        self.environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_PROC_BIND="close", OMP_PLACES="cores")
        if side.server == "onnxruntime":
            self.command = [python(build), BENCHES / "peers" / "onnxruntime_server.py", str(threads)]
        elif side.server == "ours":
            self.command = [ours, str(threads)]
        elif side.server == "peak":
            self.command = [build / "peak", str(threads)]
        else:
            self.command = [build / side.server]
        if side.server == "onednn":
            home = build / "main" / "lib"
            self.environment |= {"LD_LIBRARY_PATH": str(home), "OCL_ICD_FILENAMES": str(home / "libintelocl.so")}

    def start(self):
        def settle():
            os.sched_setaffinity(0, self.cores)
            if self.real_time:
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))

        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        bufsize=1, env=self.environment, preexec_fn=settle)

    def ask(self, command):
        """The answer to a command, split into its first word and the rest."""
        if self.process is None or self.process.poll() is not None:
            self.start()
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            status, self.process = self.process.wait(), None
            return "error", f"the server ended with status {status}"
        word, _, rest = answer.strip().partition(" ")
        return word, rest

    def stop(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
            self.process = None


def real_time_allowed():
    """Whether this user may run bursts at real-time priority."""
    try:
        before = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        os.sched_setscheduler(0, *before)
        return True
    except PermissionError:
        return False
