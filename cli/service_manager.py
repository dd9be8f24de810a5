"""What systemd wants to hear of a service of Type=notify: that it is ready, that it is stopping.

A line of text in a datagram to the socket that NOTIFY_SOCKET names ("@name" is in the abstract
namespace); without the variable nobody wants to hear.
"""

import os
import socket
from typing import Final

from .command import note

VARIABLE: Final = "NOTIFY_SOCKET"
READY: Final = b"READY=1"
STOPPING: Final = b"STOPPING=1"
_TIMEOUT_S: Final = 1.0


def tell(state: bytes) -> None:
    """Tell the service manager, if there is one.  A socket that is not there is said, no more."""
    name = os.environ.get(VARIABLE)
    if not name:
        return
    address = "\0" + name[1:] if name.startswith("@") else name
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.settimeout(_TIMEOUT_S)  # one that does not listen holds nothing up
        try:
            sock.sendto(state, address)
        except OSError as exc:
            note(f"{VARIABLE}={name}: {exc.strerror or exc}")
