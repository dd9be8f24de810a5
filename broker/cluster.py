"""The cluster of one: DescribeCluster, FindCoordinator, InitProducerId.

FindCoordinator names us for groups.  There are no transactions yet: their coordinator and
producer id are refused with an error that ends the client's attempts instead of prolonging them.
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
from segbroker.protocol.messages_transactions import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

from .call import Call
from .core import Core
from .error_map import STORAGE_FAILURES, wire_error
from .metadata import CLUSTER_OPERATIONS, NOT_ASKED

_GROUP = 0
_SHARE = 2
_BROKERS = 1
_CONTROLLERS = 2
_NO_TRANSACTIONS = "transactions are not served yet"


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
    """We, for groups; nobody, and a reason, for transactions."""
    host, port = core.advertised(call.peer)
    node = core.config.broker_id
    code, message = ErrorCode.NONE, None
    if call.request.key_type >= _SHARE:
        code, message = ErrorCode.INVALID_REQUEST, f"no key type {call.request.key_type} is served"
        node, host, port = -1, "", -1
    elif call.request.key_type != _GROUP:
        code, message = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _NO_TRANSACTIONS
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


async def init_producer_id(core: Core, call: Call[InitProducerIdRequest]) -> InitProducerIdResponse:
    """A producer id that was never given before, with epoch 0."""
    if call.request.transactional_id is not None:
        return InitProducerIdResponse(
            error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, producer_epoch=-1
        )
    try:
        producer_id = await core.producer_ids.take()
    except STORAGE_FAILURES as exc:
        return InitProducerIdResponse(error_code=wire_error(exc)[0], producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
