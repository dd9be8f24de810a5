"""In whose eyes an expression matches topics: who may describe what (topic_expressions.py).

"User:alice 10.0.0.7"    a principal and an address, as they are written down with a member
""                       everybody alike: there were no access rules when it was said
"""

from ..access.authorizer import DESCRIBE, TOPIC, Authorizer
from ..peers.peer import Peer
from ..principal import parse_principal
from .consumer_members import MaySee, every_topic


def viewer_of(authorizer: Authorizer | None, peer: Peer) -> str:
    """Whose eyes those of a connected client are."""
    return "" if authorizer is None else f"{peer.principal} {peer.address[0]}"


def sight_of(authorizer: Authorizer | None, viewer: str) -> MaySee:
    """Which topics a viewer may see; nothing, where there are rules and nobody knows who it is."""
    if authorizer is None:
        return every_topic
    if not viewer:
        return _no_topic
    text, _, host = viewer.rpartition(" ")
    principal = parse_principal(text)
    return lambda name: authorizer.would_allow_one(principal, host, DESCRIBE, TOPIC, name)


def _no_topic(name: str) -> bool:
    return False
