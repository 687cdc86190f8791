"""Builds the wheel: maturin, with the C libraries and their headers put into the package before.

`pip wheel ./python --config-settings profile=dev` builds all of it in another of cargo's profiles than `release`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import maturin
from maturin import (
    get_requires_for_build_editable,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

PACKAGE = Path(__file__).parent / "fuseplan"
CAPI = Path(__file__).parents[1] / "capi"

# By which names the loader asks for the C libraries. The first has the functions of both, so that they are there once.
LIBRARY, FILTER = "libMIOpen.so.1", "libfuseplan.so.0"

Settings = Mapping[str, Any] | None


def build_wheel(directory: str, settings: Settings = None, metadata: str | None = None) -> str:
    return _build(maturin.build_wheel, directory, settings, metadata)


def build_editable(directory: str, settings: Settings = None, metadata: str | None = None) -> str:
    return _build(maturin.build_editable, directory, settings, metadata)


def build_sdist(directory: str, settings: Settings = None) -> str:
    raise RuntimeError("there is no source distribution: the package is built in a checkout, `pip wheel ./python`")


def _build(
    build: Callable[..., str], directory: str, settings: Settings, metadata: str | None
) -> str:
    settings = dict(settings or {})
    profile = settings.pop("profile", "release")
    given = maturin.get_maturin_pep517_args(settings)
    _put_c_libraries(profile)
    return build(directory, {**settings, "build-args": [*given, "--profile", profile]}, metadata)


def _put_c_libraries(profile: str) -> None:
    """Builds the C libraries, and puts them and their headers where `library_path` and `include_path` say."""
    if not CAPI.is_dir():
        raise RuntimeError(f"{CAPI} is missing, which has the C libraries; build in a checkout of the whole repository")
    for folder in ("lib", "include"):
        shutil.rmtree(PACKAGE / folder, ignore_errors=True)
    (PACKAGE / "lib").mkdir()
    shutil.copyfile(_shared_library("capi-both", profile), PACKAGE / "lib" / LIBRARY)
    _make_filter(PACKAGE / "lib" / FILTER)
    shutil.copytree(CAPI / "include", PACKAGE / "include")


def _make_filter(path: Path) -> None:
    """Makes a library without code: linkers find libfuseplan's functions in it, and the loader takes them from the other."""
    header = (CAPI / "include" / "fuseplan.h").read_text()
    names = re.findall(r"\bFUSEPLAN_EXPORT\s[^;(]*?\b(fuseplan_\w+)\s*\(", header)
    text = "".join(f".globl {name}\n.type {name}, %function\n{name}: .long 0\n" for name in names)
    linker = ["-soname", FILTER, f"--filter={LIBRARY}", f"--version-script={CAPI / 'fuseplan' / 'exports.map'}"]
    linker += ["-rpath", "$ORIGIN", "--enable-new-dtags", "-z", "nodelete"]
    command = [*shlex.split(os.environ.get("CC", "cc")), "-shared", "-nostdlib", "-x", "assembler", "-", "-o", str(path)]
    command += [argument for of in linker for argument in ("-Xlinker", of)]
    subprocess.run(command, input=f'{text}.section .note.GNU-stack, "", %progbits\n', check=True, text=True)


def _shared_library(crate: str, profile: str) -> str:
    """Builds the shared library of a crate, without symbols that nobody links to, and says where it is."""
    cargo = [os.environ.get("CARGO", "cargo"), "rustc", "--locked", "--package", crate, "--profile", profile]
    cargo += ["--lib", "--crate-type", "cdylib", "--message-format", "json-render-diagnostics"]
    built = subprocess.run(
        [*cargo, "--", "-C", "strip=symbols"], cwd=CAPI, stdout=subprocess.PIPE, check=True, text=True
    )
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    made = [message for message in messages if "cdylib" in message.get("target", {}).get("kind", ())]
    return str(made[-1]["filenames"][0])
