"""Who may: SASL, SCRAM credentials, ACLs.

The tables are the layouts; schema.py says how to read them.  Sources: the message definitions of
kafka-clients 4.3.0, cut to the versions known here; what is served is in api_keys.py.

Invariant: every class here gives the same bytes as kafka-python's codec in every version (tested).
"""

from typing import Annotated

from .fields import Bytes, Int8, Int16, Int32, Int64, Str, since
from .schema import Message


class SaslHandshakeRequest(Message, key=17, versions=(0, 1)):
    """Choose a mechanism."""

    mechanism: Str


class SaslHandshakeResponse(Message, key=17, versions=(0, 1)):
    """The mechanisms offered."""

    error_code: Int16 = 0
    mechanisms: list[Str]


class SaslAuthenticateRequest(Message, key=36, versions=(0, 2), flexible=2):
    """One step of the mechanism's exchange."""

    auth_bytes: Bytes


class SaslAuthenticateResponse(Message, key=36, versions=(0, 2), flexible=2):
    """The server's answer to that step."""

    error_code: Int16 = 0
    error_message: Str | None
    auth_bytes: Bytes
    session_lifetime_ms: Annotated[Int64, since(1)] = 0


class DescribeUserScramCredentialsRequestUser(Message):
    name: Str


class DescribeUserScramCredentialsRequest(Message, key=50, versions=(0, 0), flexible=0):
    """Which users have SCRAM credentials; null: all."""

    users: list[DescribeUserScramCredentialsRequestUser] | None


class DescribeUserScramCredentialsResponseCredential(Message):
    mechanism: Int8
    iterations: Int32


class DescribeUserScramCredentialsResponseUser(Message):
    user: Str
    error_code: Int16 = 0
    error_message: Str | None
    credential_infos: list[DescribeUserScramCredentialsResponseCredential]


class DescribeUserScramCredentialsResponse(Message, key=50, versions=(0, 0), flexible=0):
    """Mechanisms and iterations per user."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None
    results: list[DescribeUserScramCredentialsResponseUser]


class AlterUserScramCredentialsRequestDeletion(Message):
    name: Str
    mechanism: Int8


class AlterUserScramCredentialsRequestUpsertion(Message):
    name: Str
    mechanism: Int8
    iterations: Int32
    salt: Bytes
    salted_password: Bytes


class AlterUserScramCredentialsRequest(Message, key=51, versions=(0, 0), flexible=0):
    """Delete, insert or update SCRAM credentials."""

    deletions: list[AlterUserScramCredentialsRequestDeletion]
    upsertions: list[AlterUserScramCredentialsRequestUpsertion]


class AlterUserScramCredentialsResponseUser(Message):
    user: Str
    error_code: Int16 = 0
    error_message: Str | None


class AlterUserScramCredentialsResponse(Message, key=51, versions=(0, 0), flexible=0):
    """One row per user."""

    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResponseUser]


class DescribeAclsRequest(Message, key=29, versions=(1, 3), flexible=2):
    """The ACLs that match a filter."""

    resource_type_filter: Int8
    resource_name_filter: Str | None
    pattern_type_filter: Int8 = 3
    principal_filter: Str | None
    host_filter: Str | None
    operation: Int8
    permission_type: Int8


class DescribeAclsResponseAcl(Message):
    principal: Str
    host: Str
    operation: Int8
    permission_type: Int8


class DescribeAclsResponseResource(Message):
    resource_type: Int8
    resource_name: Str
    pattern_type: Int8 = 3
    acls: list[DescribeAclsResponseAcl]


class DescribeAclsResponse(Message, key=29, versions=(1, 3), flexible=2):
    """The ACLs by resource."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None
    resources: list[DescribeAclsResponseResource]


class CreateAclsRequestCreation(Message):
    resource_type: Int8
    resource_name: Str
    resource_pattern_type: Int8 = 3
    principal: Str
    host: Str
    operation: Int8
    permission_type: Int8


class CreateAclsRequest(Message, key=30, versions=(1, 3), flexible=2):
    """Add ACLs."""

    creations: list[CreateAclsRequestCreation]


class CreateAclsResponseResult(Message):
    error_code: Int16 = 0
    error_message: Str | None


class CreateAclsResponse(Message, key=30, versions=(1, 3), flexible=2):
    """One row per ACL."""

    throttle_time_ms: Int32 = 0
    results: list[CreateAclsResponseResult]


class DeleteAclsRequestFilter(Message):
    resource_type_filter: Int8
    resource_name_filter: Str | None
    pattern_type_filter: Int8 = 3
    principal_filter: Str | None
    host_filter: Str | None
    operation: Int8
    permission_type: Int8


class DeleteAclsRequest(Message, key=31, versions=(1, 3), flexible=2):
    """Delete the ACLs that match filters."""

    filters: list[DeleteAclsRequestFilter]


class DeleteAclsResponseAcl(Message):
    error_code: Int16 = 0
    error_message: Str | None
    resource_type: Int8
    resource_name: Str
    pattern_type: Int8 = 3
    principal: Str
    host: Str
    operation: Int8
    permission_type: Int8


class DeleteAclsResponseResult(Message):
    error_code: Int16 = 0
    error_message: Str | None
    matching_acls: list[DeleteAclsResponseAcl]


class DeleteAclsResponse(Message, key=31, versions=(1, 3), flexible=2):
    """What each filter deleted."""

    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsResponseResult]
