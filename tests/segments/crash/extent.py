"""How far the quick tier goes.  By itself, so that who plants a bug imports nothing that has it."""

from typing import Final

from ...support.extent import share

QUICK: Final = {
    "thin_every": share(120, 600),
    "alike_every": share(64, 16),
    "settle_every": 8,
    "nested_every": share(320, 40),
    "inner_every": share(4, 1),
}
"""Fields of explorer.Plan."""

THIN_EVERY_FOR_NO_BUG: Final = share(15, 600)
"""Instead, for scenarios that no planted bug is looked for in."""
