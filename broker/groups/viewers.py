"""In whose eyes an expression matches topics: who may describe what (topic_expressions.py).

"User:alice 10.0.0.7"    a principal and an address, as they are written down with a member
""                       everybody alike: there were no access rules when it was said
"""

from ..access.authorizer import DESCRIBE, TOPIC, Authorizer
from ..peers.peer import Peer
from ..principal import Principal
from .consumer_members import MaySee, every_topic


def viewer_of(authorizer: Authorizer | None, peer: Peer) -> str:
    """Whose eyes those of a connected client are."""
    return "" if authorizer is None else f"{peer.principal} {peer.address[0]}"


class Eyes:
    """Those of one viewer, by the present rules."""

    __slots__ = ("_authorizer", "_host", "_principal")

    def __init__(self, authorizer: Authorizer, principal: Principal, host: str) -> None:
        self._authorizer = authorizer
        self._principal = principal
        self._host = host

    @property
    def rules(self) -> object:
        """The present ones: as long as they are the same object, so are the answers."""
        return self._authorizer.rules

    def __call__(self, name: str) -> bool:
        """Whether this topic may be described."""
        return self._authorizer.decide_one(self._principal, self._host, DESCRIBE, TOPIC, name)


def sight_of(authorizer: Authorizer | None, viewer: str) -> MaySee:
    """Which topics a viewer may see; nothing, where there are rules and nobody knows who it is."""
    if authorizer is None:
        return every_topic
    if not viewer:
        return _no_topic
    text, _, host = viewer.rpartition(" ")
    kind, _, name = text.partition(":")  # empty where the subject of a certificate is
    return Eyes(authorizer, Principal(kind, name), host)


def _no_topic(name: str) -> bool:
    return False
