"""Who may do what: the one question that every request is asked when `authorizer = acl`.

    allows(peer, operation, resource type, name)
        decided already for this principal, host, operation and resource?  -> one dict look-up
        a super user                                                       -> yes
        the rules (acl_rules.py)                                           -> yes or no
        no rule names the resource                  -> allow_everyone_if_no_acl_found, by default no

Rules are control events (segments/metadata/acls.py): durable before their creation is answered,
and in force from then on.  A change of a rule empties the cache of decisions as a whole.

Invariants: nobody is allowed anything that no rule, no super user and no setting says; a decision
in the cache is one that the present rules would make.

Limits: DECISIONS_MAX cached decisions, then all are forgotten and made again.  Decisions about
names of more than NAME_CACHED_MAX characters are not cached: anyone who may ask can make names up.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final

import trio

from segbroker.protocol.acls import CLUSTER_NAME, OPERATIONS_OF, Operation, ResourceType
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.acls import CREATED, DELETED, SECTION, Acl, acls_of, packed

from ..peers.peer import Peer
from ..principal import Principal
from .acl_rules import Rules, Verdict
from .audit import Audit

DECISIONS_MAX: Final = 100_000
NAME_CACHED_MAX: Final = 256
SOME_TOPIC: Final = "(any)"
"""In the audit log, which of them is not asked; no topic can be called so."""

# The operations as plain numbers: an enum member costs a look-up and a call to hash.
READ: Final = int(Operation.READ)
WRITE: Final = int(Operation.WRITE)
CREATE: Final = int(Operation.CREATE)
DELETE: Final = int(Operation.DELETE)
ALTER: Final = int(Operation.ALTER)
DESCRIBE: Final = int(Operation.DESCRIBE)
DESCRIBE_CONFIGS: Final = int(Operation.DESCRIBE_CONFIGS)
ALTER_CONFIGS: Final = int(Operation.ALTER_CONFIGS)
CLUSTER_ACTION: Final = int(Operation.CLUSTER_ACTION)
IDEMPOTENT_WRITE: Final = int(Operation.IDEMPOTENT_WRITE)
TOPIC: Final = int(ResourceType.TOPIC)
GROUP: Final = int(ResourceType.GROUP)
CLUSTER: Final = int(ResourceType.CLUSTER)
TRANSACTIONAL_ID: Final = int(ResourceType.TRANSACTIONAL_ID)


class Authorizer:
    """The decisions of one broker."""

    __slots__ = (
        "_cache",
        "_open_world",
        "_some_topic",
        "_super_users",
        "audit",
        "changing",
        "manager",
        "rules",
    )

    def __init__(
        self,
        manager: DiskManager,
        *,
        super_users: Iterable[Principal],
        allow_everyone_if_no_acl_found: bool,
        audit: Audit,
    ) -> None:
        self.manager = manager
        self.audit = audit
        # Held from the look at the rules that there are until the change of them is stored.
        self.changing = trio.Lock()
        self._super_users = frozenset(super_users)
        self._open_world = allow_everyone_if_no_acl_found
        self._cache: dict[tuple[Principal, str, int, int, str], bool] = {}
        # To be asked of every producer that begins, and answered by a look at all rules.
        self._some_topic: dict[tuple[Principal, str, int], bool] = {}
        self.rules = Rules(())
        self.reload()

    # Decisions

    def allows(self, peer: Peer, operation: int, resource_type: int, name: str) -> bool:
        """Whether `peer` may do this; a refusal is in the audit log. From any thread."""
        key = (peer.principal, peer.address[0], operation, resource_type, name)
        allowed = self._cache.get(key)
        if allowed is None:
            allowed = self._decide(key)
        if not allowed or self.audit.allowed_too:
            self._tell(key, allowed)
        return allowed

    def would_allow(self, peer: Peer, operation: int, resource_type: int, name: str) -> bool:
        """As `allows`, for what is only shown or left out: nothing was refused, nothing is told."""
        return self.would_allow_one(peer.principal, peer.address[0], operation, resource_type, name)

    def would_allow_one(
        self, principal: Principal, host: str, operation: int, resource_type: int, name: str
    ) -> bool:
        """As `would_allow`, for somebody who may not be connected now."""
        key = (principal, host, operation, resource_type, name)
        allowed = self._cache.get(key)
        return self._decide(key) if allowed is None else allowed

    def allows_cluster(self, peer: Peer, operation: int) -> bool:
        """Whether `peer` may do this to the cluster."""
        return self.allows(peer, operation, CLUSTER, CLUSTER_NAME)

    def allows_by_cluster(self, peer: Peer, operation: int) -> bool:
        """As `allows_cluster`, where a right to something smaller is asked for next: only a yes is
        in the audit log."""
        return self.would_allow(peer, operation, CLUSTER, CLUSTER_NAME) and self.allows_cluster(
            peer, operation
        )

    def cluster_operations(self, peer: Peer) -> int:
        """The bits of what `peer` may do with the cluster; none if it may not describe it."""
        if not self.would_allow(peer, DESCRIBE, CLUSTER, CLUSTER_NAME):
            return 0
        return self.operations(peer, CLUSTER, CLUSTER_NAME)

    def allows_some_topic(self, peer: Peer, operation: int) -> bool:
        """Whether there may be a topic on which `peer` may do this; only a yes is in the audit log.

        From any thread.
        """
        allowed = self._allows_some_topic(peer, operation)
        if allowed and self.audit.allowed_too:
            key = (peer.principal, peer.address[0], operation, TOPIC, SOME_TOPIC)
            self._tell(key, allowed)
        return allowed

    def _allows_some_topic(self, peer: Peer, operation: int) -> bool:
        if peer.principal in self._super_users:
            return True
        known = self._some_topic  # before the rules, as in `_decide`
        if self._open_world and not self.rules.is_about_all(TOPIC):
            return True
        key = (peer.principal, peer.address[0], operation)
        allowed = known.get(key)
        if allowed is None:
            principal, host, _ = key
            allowed = self.rules.allows_some(str(principal), host, operation, TOPIC)
            if len(known) >= DECISIONS_MAX:
                known.clear()
            known[key] = allowed
        return allowed

    def operations(self, peer: Peer, resource_type: int, name: str) -> int:
        """The bits of what `peer` may do with a resource, bit n for operation n."""
        return sum(
            1 << operation
            for operation in OPERATIONS_OF[ResourceType(resource_type)]
            if self.would_allow(peer, int(operation), resource_type, name)
        )

    def decide_one(
        self, principal: Principal, host: str, operation: int, resource_type: int, name: str
    ) -> bool:
        """As `would_allow_one`, by the rules at once: for who asks about thousands of names, and
        keeps the answers."""
        if principal in self._super_users:
            return True
        verdict = self.rules.verdict(str(principal), host, operation, resource_type, name)
        return verdict is Verdict.ALLOWED or (verdict is Verdict.UNRULED and self._open_world)

    def _decide(self, key: tuple[Principal, str, int, int, str]) -> bool:
        # Taken before the rules: a decision by rules that were replaced meanwhile is not kept.
        cache = self._cache
        allowed = self.decide_one(*key)
        if len(key[-1]) <= NAME_CACHED_MAX:
            if len(cache) >= DECISIONS_MAX:
                cache.clear()  # in place: it may have been replaced meanwhile
            cache[key] = allowed
        return allowed

    def _tell(self, key: tuple[Principal, str, int, int, str], allowed: bool) -> None:
        principal, host, operation, resource_type, name = key
        self.audit.note(
            allowed=allowed,
            principal=str(principal),
            host=host,
            operation=Operation(operation).name.lower(),
            resource_type=ResourceType(resource_type).name.lower(),
            resource_name=name,
        )

    # Rules

    def reload(self) -> None:
        """Decide by the rules that the storage has now."""
        self._go_by(Rules(acls_of(self.manager.section(SECTION))))

    def create(self, acls: Collection[Acl], done: Callable[[OSError | None], None]) -> None:
        """Add rules; `done` when they are durable and in force, or are not."""
        self._record(CREATED, acls, done)

    def delete(self, acls: Collection[Acl], done: Callable[[OSError | None], None]) -> None:
        """Take rules away; `done` when that is durable and in force, or is not."""
        self._record(DELETED, acls, done)

    def _record(
        self, kind: str, acls: Collection[Acl], done: Callable[[OSError | None], None]
    ) -> None:
        def written(error: OSError | None) -> None:
            rules = self.rules.changed(**{"added" if kind == CREATED else "removed": acls})
            kept = (self.manager.section(SECTION) or {}).get("rows", ())
            if error is None and len(rules.acls) == len(kept):
                self._go_by(rules)
            else:  # nobody knows, or it was told out of turn: what is stored is the truth
                self.reload()
            done(error)

        self.manager.record_soon(written, kind, rows=packed(acls))

    def _go_by(self, rules: Rules) -> None:
        self.rules = rules
        self._cache = {}
        self._some_topic = {}
