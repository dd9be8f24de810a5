"""Which implementation of the batch kernel runs: C where it was built, else its Python twin.

`backend` is a module; record_batch looks its functions up there on each call, so that a test or
a benchmark can put the other one in its place.  Type checkers see the Python one, batch_pure.py:
it is the specification, and a change begins there.  The C one is native/kernel.c.

Nothing is logged here: whoever starts a program says once that it runs without the kernel.
"""

from types import ModuleType
from typing import TYPE_CHECKING

from . import batch_pure

__all__ = ["KERNEL_IS_NATIVE", "backend", "use"]

if TYPE_CHECKING:
    from . import batch_pure as backend
else:
    try:
        from . import batch_native as backend
    except ImportError:  # built without a C compiler
        backend = batch_pure

KERNEL_IS_NATIVE = backend.__name__ != batch_pure.__name__
"""Whether the C kernel was built."""


def use(module: ModuleType) -> None:
    """Run on `module` (batch_pure or batch_native) from now on; for tests and benchmarks."""
    globals()["backend"] = module
