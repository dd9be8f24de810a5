"""Handout: in C where it was built, else pure.

What it means is said in handout_pure and nowhere else; type checkers see that one.
"""

from typing import TYPE_CHECKING

from segbroker.protocol.kernel import KERNEL_IS_NATIVE

__all__ = ["Handout"]

if TYPE_CHECKING or not KERNEL_IS_NATIVE:
    from .handout_pure import Handout
else:
    from segbroker.protocol.handout_native import Handout
