"""SASL as Kafka carries it: the mechanisms' names, and the one message of PLAIN.

    SaslHandshake      the name of a mechanism
    SaslAuthenticate   the mechanism's own messages, as opaque bytes

PLAIN (RFC 4616) is one message of the client, the answer is empty:

    authorization id NUL user name NUL password

An authorization id other than the user's name asks to act for somebody else: nobody may here.
SCRAM is in scram.py.
"""

from typing import Final, NamedTuple

from .errors import RemoteProtocolError

PLAIN: Final = "PLAIN"

# Names are file-system and terminal safe lengths; passwords may be generated keys.
USER_NAME_SIZE_MAX: Final = 255
PASSWORD_SIZE_MAX: Final = 4_096
# One message of a mechanism: PLAIN's with the longest names and password is half of it.
SASL_MESSAGE_SIZE_MAX: Final = 16 << 10


class PlainMessage(NamedTuple):
    """What a client says in PLAIN."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"PlainMessage(user={self.user!r}, password=<hidden>)"


def check_user_name(name: str) -> None:
    """Raises ValueError for a name that no user can have."""
    size = len(name.encode("utf-8", "surrogatepass"))
    if not 0 < size <= USER_NAME_SIZE_MAX:
        raise ValueError(f"a user name of {size} bytes, allowed are 1 to {USER_NAME_SIZE_MAX}")
    if not name.isprintable():
        raise ValueError(f"user name {name!r} has characters that cannot be printed")


def check_password(password: str) -> None:
    """Raises ValueError for a password that PLAIN cannot say; its text does not hold it."""
    if not 0 < len(password.encode()) <= PASSWORD_SIZE_MAX or "\0" in password:
        raise ValueError(f"a password has 1 to {PASSWORD_SIZE_MAX} bytes and no NUL")


def encode_plain(user: str, password: str) -> bytes:
    """The client's message."""
    assert "\0" not in user + password, "NUL separates the parts"
    return f"\0{user}\0{password}".encode()


def decode_plain(message: bytes) -> PlainMessage:
    """The user and the password.  Raises RemoteProtocolError; its text holds neither."""
    if len(message) > SASL_MESSAGE_SIZE_MAX:
        raise RemoteProtocolError(
            f"a SASL message of {len(message)} bytes, limit {SASL_MESSAGE_SIZE_MAX}"
        )
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise RemoteProtocolError("a PLAIN message is not UTF-8") from None
    if len(parts) != 3:
        raise RemoteProtocolError(f"a PLAIN message of {len(parts)} parts instead of 3")
    for_whom, user, password = parts
    if not user or not password:
        raise RemoteProtocolError("a PLAIN message without user name or password")
    if for_whom and for_whom != user:
        raise RemoteProtocolError("a PLAIN message that asks to act for another user")
    return PlainMessage(user, password)
