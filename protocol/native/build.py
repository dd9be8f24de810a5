"""Build recipe of the C kernel: cffi, API mode.  Run by setup.py, never imported.

The declarations in kernel.h are read twice, by cffi's parser and by the C compiler, so
that file must stay plain prototypes (no #include, no macros).

No -march: the one wheel runs everywhere; CRC-32C picks the processor's instructions when it is
loaded.  Py_LIMITED_API holds objects.c to the stable ABI, which the wheel's tag promises.
"""

from pathlib import Path

from cffi import FFI

HERE = Path(__file__).parent

ffibuilder = FFI()
ffibuilder.cdef((HERE / "kernel.h").read_text())
ffibuilder.set_source(
    "segbroker.protocol._kernel",
    '#include <stdint.h>\n#include "kernel.h"',
    sources=[
        "protocol/native/crc32c.c",
        "protocol/native/exchange.c",
        "protocol/native/handout.c",
        "protocol/native/kernel.c",
        "protocol/native/objects.c",
        "protocol/native/pending.c",
        "protocol/native/produce.c",
        "protocol/native/rows.c",
    ],
    include_dirs=["protocol/native"],
    depends=["protocol/native/kernel.h", "protocol/native/bytes.h", "protocol/native/rows.h"],
    extra_compile_args=["-O2", "-Wall", "-Wextra"],
)
