"""Build recipe of the C kernel: cffi, API mode.  Run by setup.py, never imported.

The declarations in kernel.h are read twice, by cffi's parser and by the C compiler, so
that file must stay plain prototypes (no #include, no macros).
"""

from pathlib import Path

from cffi import FFI

HERE = Path(__file__).parent

ffibuilder = FFI()
ffibuilder.cdef((HERE / "kernel.h").read_text())
ffibuilder.set_source(
    "segbroker.protocol._kernel",
    '#include <stdint.h>\n#include "kernel.h"',
    sources=["protocol/native/kernel.c"],
    include_dirs=["protocol/native"],
    depends=["protocol/native/kernel.h"],
    extra_compile_args=["-O2", "-Wall", "-Wextra"],
)
