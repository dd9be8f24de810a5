"""Pending, Ticket, plain_send, partitions_for_keys and scatter: in C where it was built, else pure.

What they mean is said in pending_pure and nowhere else; type checkers see that one.
"""

from typing import TYPE_CHECKING

from segbroker.protocol.kernel import KERNEL_IS_NATIVE

__all__ = ["Pending", "Ticket", "partitions_for_keys", "plain_send", "scatter"]

if TYPE_CHECKING or not KERNEL_IS_NATIVE:
    from .pending_pure import Pending, Ticket, partitions_for_keys, plain_send, scatter
else:
    from segbroker.protocol.pending_native import (
        Pending,
        Ticket,
        partitions_for_keys,
        plain_send,
        scatter,
    )
