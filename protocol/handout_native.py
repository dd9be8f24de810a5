"""The iterator under `async for` by the C kernel: the name of client/handout_pure, same meaning.

Importing this fails where no kernel was built.
"""

from typing import Any

from ._kernel import lib

_types: list[Any] = [None]
if lib.sb_handout_type(id(_types)):
    raise ImportError("the kernel could not make its type")
(Handout,) = _types


async def _later(handout: Any) -> Any:  # noqa: ANN401 - whatever the items are
    """What `anext` gives while the item of the last one is not awaited: a coroutine of its own, as
    each is of the pure twin."""
    if hasattr(handout, "_taken"):
        return await handout  # whoever took it never came for it
    return await anext(handout)


Handout._later = _later
