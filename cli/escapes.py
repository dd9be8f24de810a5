r"""Escapes in arguments, as kcat has them: \n \t \r \0 \\ \xXX.

Arguments become bytes: a delimiter may be any byte.  An escape that is none of these is refused:
silently keeping the backslash hides a typing mistake until the data is wrong.
"""

import os
import re

SIMPLE = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)


def unescape(text: str) -> bytes:
    r"""The bytes meant by an argument.

    Raises:
        ValueError: an escape that is not in the table; the message names it.
    """
    # fsencode: what was no UTF-8 on the command line comes back as the bytes it was.
    return _ESCAPE.sub(lambda match: _byte(match[1]), os.fsencode(text))


def _byte(escape: bytes) -> bytes:
    name = os.fsdecode(escape)
    if len(name) == 3:
        return bytes([int(name[1:], 16)])
    if name in SIMPLE:
        return SIMPLE[name]
    raise ValueError(f"\\{name} is not an escape; there are \\n \\t \\r \\0 \\\\ and \\xXX")
