"""Which implementation of the batch kernel runs: C where it was built, else its pure twin.

`backend` is a module; record_batch looks its functions up there on each call, so a test can put
the other one in its place.  Nobody is told from here: who starts a program says once that it
runs without the kernel.
"""

from types import ModuleType

from . import batch_pure

backend: ModuleType
try:
    from . import batch_native

    backend = batch_native
except ImportError:  # built without a C compiler
    backend = batch_pure

KERNEL_IS_NATIVE = backend is not batch_pure
"""Whether the C kernel was built."""
