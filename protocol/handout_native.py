"""The iterator under `async for` by the C kernel: the name of client/handout_pure, same meaning.

Importing this fails where no kernel was built.
"""

from typing import Any

from ._kernel import lib

_types: list[Any] = [None]
if lib.sb_handout_type(id(_types)):
    raise ImportError("the kernel could not make its type")
(Handout,) = _types
