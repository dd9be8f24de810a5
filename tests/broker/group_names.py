"""The groups of a broker, looked at from inside."""

from segbroker.broker.groups.all_names import each_once
from segbroker.broker.groups.groups import Groups


def group_names(groups: Groups) -> set[str]:
    """All of them but the share groups."""
    return {name for name in each_once(groups.places()) if name is not None}
