"""Requests that need a rule: what each is answered without it, and what it needs.

The case of a new api goes into the list of its kind.
"""

from collections.abc import Callable

from segbroker.protocol import messages_admin as admin
from segbroker.protocol import messages_groups as groups
from segbroker.protocol import messages_transactions as transactions
from segbroker.protocol.schema import Message

from .authorization_case import Case
from .authorization_cases_administration import OF_ADMINISTRATION
from .authorization_cases_groups import OF_GROUPS
from .authorization_cases_records import OF_RECORDS
from .authorization_cases_shares import OF_SHARE_GROUPS
from .authorization_cases_streams import OF_STREAMS_GROUPS

CASES: dict[str, Callable[[], Case]] = {
    **OF_RECORDS,
    **OF_GROUPS,
    **OF_SHARE_GROUPS,
    **OF_STREAMS_GROUPS,
    **OF_ADMINISTRATION,
}
# Answers leave out what may not be known, instead of saying so: tests of their own.
LISTS: set[type[Message]] = {groups.ListGroupsRequest, transactions.ListTransactionsRequest}
ASKS_ABOUT_ITSELF: set[type[Message]] = {admin.DescribeClusterRequest}
