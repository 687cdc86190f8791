#!/usr/bin/env python3
"""Writes a stand-in for AMD's library as C: every function of the header, refusing everything.

It is linked with the version node of the original, so that a program built against it asks for the same
versioned symbols as one built against the original.

Usage: standin.py <include folder> <output.c>
"""
import re
import sys
from pathlib import Path

names = []
for header in ["miopen.h", "fusion.h", "primitives.h", "find2.h", "unimplemented.h", "beta.h", "graph.h"]:
    text = (Path(sys.argv[1]) / "miopen" / header).read_text()
    names += re.findall(r"MIOPEN_EXPORT\s+miopenStatus_t\s+(\w+)\s*\(", text)
functions = "".join(f"int {name}(void) {{ return 7; }}\n" for name in names)
Path(sys.argv[2]).write_text(f'const char* miopenGetErrorString(void) {{ return "stand-in"; }}\n{functions}')
