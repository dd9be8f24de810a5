"""What speaks there, if it is not Kafka: told by the first bytes of what should have been a frame.

The first four bytes of a frame are its size; of text or of a TLS record they make an absurd one.
Whoever is refused for that size wants to know what he did: asked a Kafka port with a browser or a
health check, or with TLS where there is none.

Only for words in an error: nothing is decided by it, a frame may begin with any of these.
"""

from typing import Final

_PROXY: Final = "the PROXY protocol, which a load balancer in front has to leave out"
# What begins so -> what it is.
_BEGINNINGS: Final = (
    (b"\x16\x03", "a TLS handshake"),
    (b"\x15\x03", "a TLS alert"),
    (b"HTTP", "an HTTP answer"),
    (b"PRI ", "an HTTP/2 request"),
    *(
        (method, "an HTTP request")
        for method in (
            b"GET ",
            b"POST",
            b"HEAD",
            b"PUT ",
            b"DELE",
            b"OPTI",
            b"PATC",
            b"CONN",
            b"TRAC",
        )
    ),
    (b"SSH-", "an SSH greeting"),
    (b"PROX", _PROXY),
    (b"\r\n\r\n", _PROXY),  # version 2
    (b"AMQP", "an AMQP greeting"),
)
TLS_ALERT: Final = "a TLS alert"


def looks_like(head: bytes) -> str:
    """What begins with these four bytes; "" for nothing that is known."""
    return next((what for beginning, what in _BEGINNINGS if head.startswith(beginning)), "")
