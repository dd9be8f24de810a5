"""A part of a request that is refused with a code and a sentence; the rest of it goes on."""

from segbroker.protocol.errors import ErrorCode


class Refused(Exception):
    """Not done; `code` and `message` are for the client."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def invalid_request(message: str) -> Refused:
    """For what contradicts itself, or asks for what nobody can have."""
    return Refused(ErrorCode.INVALID_REQUEST, message)
