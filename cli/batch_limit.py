"""What to say of a topic that refuses batches of the size that producers make by default."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from segbroker.client.administration import ConfigEntry

USUAL_BYTES: Final = 1 << 20
"""What a topic takes by default.  librdkafka fills batches up to 1,000,000 bytes."""
_LIMIT: Final = "max.message.bytes"
LIMITS: Final = frozenset({"segment.bytes", _LIMIT})
"""The settings that decide how large a batch may be: without the second, it is the first."""


def small_batches(config: "Mapping[str, ConfigEntry]") -> str | None:
    """One sentence, where the largest batch is smaller than usual; None: it is not, or nobody says.

    config: of the topic, in force.
    """
    try:
        sizes = {key: int(config[key].value or "") for key in LIMITS}
    except (KeyError, ValueError):
        return None
    if sizes[_LIMIT] >= USUAL_BYTES:
        return None
    too_small = sorted(
        key
        for key, size in sizes.items()
        if size < USUAL_BYTES and (key != _LIMIT or not config[key].is_default)
    )
    return (
        f"it refuses batches above {sizes[_LIMIT]:,} bytes, and many producers make larger ones"
        f" (librdkafka up to 1,000,000): set {' and '.join(too_small or [_LIMIT])} to 1MiB or more,"
        " or their batch.size to less"
    )
