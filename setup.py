"""What setup.cfg cannot say: the C kernel is compiled by cffi, where a compiler works.

Without one the package installs all the same and its pure-Python twin serves; so the probe
compiles a real file against Python.h instead of asking whether a `cc` is on the PATH.
"""

import os
import subprocess
import sysconfig
import tempfile
from pathlib import Path

from setuptools import setup


def compiler_works() -> bool:
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    include = sysconfig.get_paths()["include"]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <Python.h>\nint probe(void) { return 0; }\n")
        command = [*compiler, "-I", include, "-c", str(source), "-o", str(Path(folder, "probe.o"))]
        try:
            return subprocess.run(command, capture_output=True, timeout=60).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False


if compiler_works():
    # cffi builds against the limited API: one wheel for every CPython from 3.11 on.
    setup(
        cffi_modules=["protocol/native/build.py:ffibuilder"],
        options={"bdist_wheel": {"py_limited_api": "cp311"}},
    )
else:
    print("segbroker: no working C compiler; installing without the C kernel (slower)")
    setup()
