"""Who may do what, and how much of it by default.

Keys of the configuration; config.py puts them together.
"""

from dataclasses import dataclass

from .config_key import key


@dataclass(frozen=True)
class AccessKeys:
    """See the module."""

    allow_anonymous_network: bool = key(
        False,
        "Whether a listener without authentication may be on an address that other machines can "
        "reach. If not, such a listener is an error at the start.",
        listener="any",
    )
    authorizer: str = key(
        "none",
        "Access control. none: every client may do everything. acl: only what an access rule or "
        "super_users allows.",
        choices=("none", "acl"),
    )
    super_users: str = key(
        "",
        "Principals that may do everything, separated by semicolons: User:admin;User:alice.",
        kafka="super.users",
    )
    allow_everyone_if_no_acl_found: bool = key(
        False,
        "With authorizer = acl: whether every client has access to a resource without rules.",
        kafka="allow.everyone.if.no.acl.found",
    )
    audit_allowed: bool = key(
        False,
        "With authorizer = acl: log also what is allowed, not only what is denied.",
        dynamic=True,
    )
    audit_lines_max: int = key(
        100,
        "How many different decisions the audit log shows per minute; further ones are only "
        "counted.",
        most=100_000,
        dynamic=True,
    )
    quota_produce_bytes_per_second: int = key(
        0,
        "Bytes of produce requests per second, for each user and address without a quota of its "
        "own (producer_byte_rate). A client beyond it is throttled: its connection is not read "
        "for a while. 0: no limit.",
        most=1 << 40,
        dynamic=True,
    )
    quota_consume_bytes_per_second: int = key(
        0,
        "The same for bytes of fetched records (consumer_byte_rate).",
        most=1 << 40,
        dynamic=True,
    )
    quota_requests_per_second: int = key(
        0, "The same for the number of requests (request_rate).", dynamic=True
    )
