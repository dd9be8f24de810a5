"""Checksums: CRC-32C for record batches, XXH3-64 for everything segbroker stores beside them.

CRC-32C (Castagnoli) is Kafka's: every client checks it, it covers a batch from byte 21 on.  The
C kernel computes it with the processor's own instruction; where no kernel was built,
google-crc32c serves, which does the same in its wheel.  A Python loop would be a thousand times
slower and is nowhere.

XXH3-64 is the xxhash package's, which runs at memory speed already
(docs/decisions/0008-xxh3-64-comes-from-the-xxhash-package.md).
"""

from typing import TypeAlias

import google_crc32c
import xxhash

try:
    from ._kernel import ffi, lib
except ImportError:  # built without a C compiler
    lib = None  # type: ignore[assignment]  # a module where there is one
else:
    _U8 = ffi.typeof("uint8_t[]")

__all__ = ["Buffer", "crc32c", "crc32c_native", "crc32c_portable", "lib", "xxh3_64"]

Buffer: TypeAlias = bytes | bytearray | memoryview


def crc32c_portable(data: Buffer, value: int = 0) -> int:
    """CRC-32C without the kernel; the same result."""
    # google-crc32c takes bytes only; the copy costs less than the sum itself.
    return int(google_crc32c.extend(value, data if isinstance(data, bytes) else bytes(data)))


def crc32c_native(data: Buffer, value: int = 0) -> int:
    """CRC-32C by the kernel; only where it was built."""
    pointer = data if isinstance(data, bytes) else ffi.from_buffer(_U8, data)
    return lib.sb_crc32c(value, pointer, len(data))


crc32c = crc32c_portable if lib is None else crc32c_native
"""CRC-32C of `data`, or of what `value` already covers followed by `data`."""


def xxh3_64(data: Buffer) -> int:
    """XXH3-64 of `data` with seed 0, as an unsigned integer."""
    return xxhash.xxh3_64_intdigest(data)
