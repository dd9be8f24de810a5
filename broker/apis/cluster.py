"""The cluster of one: DescribeCluster, FindCoordinator.

FindCoordinator names us, for groups and for transactions.
"""

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeClusterResponseBroker,
)
from segbroker.protocol.messages_groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)

from ..call import Call
from ..core import Core
from .metadata import CLUSTER_OPERATIONS, NOT_ASKED

_GROUP = 0
_TRANSACTION = 1
_BROKERS = 1
_CONTROLLERS = 2


def describe_cluster(core: Core, call: Call[DescribeClusterRequest]) -> DescribeClusterResponse:
    """Who and where we are.  The controllers (endpoint type 2) are no endpoint of ours."""
    if (kind := call.request.endpoint_type) != _BROKERS:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        if kind == _CONTROLLERS:
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        return DescribeClusterResponse(
            error_code=code,
            error_message=f"endpoint type {kind} is not that of a broker, {_BROKERS}",
            endpoint_type=kind,
            cluster_id="",
            brokers=[],
        )
    host, port = core.advertised(call.peer)
    node = core.config.broker_id
    return DescribeClusterResponse(
        endpoint_type=call.request.endpoint_type,
        cluster_id=core.topics.manager.cluster_id,
        controller_id=node,
        brokers=[DescribeClusterResponseBroker(broker_id=node, host=host, port=port)],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if call.request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def find_coordinator(core: Core, call: Call[FindCoordinatorRequest]) -> FindCoordinatorResponse:
    """We, for groups and transactions."""
    host, port = core.advertised(call.peer)
    node = core.config.broker_id
    code, message = ErrorCode.NONE, None
    if call.request.key_type not in (_GROUP, _TRANSACTION):
        code, message = ErrorCode.INVALID_REQUEST, f"no key type {call.request.key_type} is served"
        node, host, port = -1, "", -1
    return FindCoordinatorResponse(
        error_code=code,
        error_message=message,
        node_id=node,
        host=host,
        port=port,
        coordinators=[
            FindCoordinatorResponseCoordinator(
                key=key,
                node_id=node,
                host=host,
                port=port,
                error_code=code,
                error_message=message,
            )
            for key in call.request.coordinator_keys
        ],
    )
