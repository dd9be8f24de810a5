"""Settings on the wire: changed and described, of the broker, of topics and of groups."""

from collections.abc import Mapping

from segbroker.protocol import messages_admin as messages

from .wire_client import WireClient

BROKER, LOGGER, GROUP = 4, 8, 32
SET_KEY, DELETE_KEY, APPEND_KEY, SUBTRACT_KEY = 0, 1, 2, 3

DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT, DYNAMIC_LOGGER, DYNAMIC_GROUP = 2, 3, 4, 5, 6, 8


async def alter(client: WireClient, broker: str, **values: str | None) -> tuple[int, str | None]:
    """Change settings one by one; dots in names are written as two underscores."""
    return await alter_all(client, broker, values)


async def alter_all(
    client: WireClient,
    broker: str,
    values: Mapping[str, str | None],
    *,
    kind: int = BROKER,
    operation: int | None = None,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    """The same, with everything that may be said."""
    request = messages.IncrementalAlterConfigsRequest(
        resources=[
            messages.IncrementalAlterConfigsRequestResource(
                resource_type=kind,
                resource_name=broker,
                configs=[
                    messages.IncrementalAlterConfigsRequestConfig(
                        name=key.replace("__", "."),
                        config_operation=(
                            operation
                            if operation is not None
                            else DELETE_KEY
                            if value is None
                            else SET_KEY
                        ),
                        value=value,
                    )
                    for key, value in values.items()
                ],
            )
        ],
        validate_only=validate_only,
    )
    reply = await client.ask(request, messages.IncrementalAlterConfigsResponse, 1)
    return reply.responses[0].error_code, reply.responses[0].error_message


async def replace(client: WireClient, broker: str, **values: str) -> int:
    request = messages.AlterConfigsRequest(
        resources=[
            messages.AlterConfigsRequestResource(
                resource_type=BROKER,
                resource_name=broker,
                configs=[
                    messages.AlterConfigsRequestConfig(name=key, value=value)
                    for key, value in values.items()
                ],
            )
        ],
        validate_only=False,
    )
    reply = await client.ask(request, messages.AlterConfigsResponse, 2)
    return reply.responses[0].error_code


async def describe(
    client: WireClient, broker: str, *, kind: int = BROKER
) -> dict[str, messages.DescribeConfigsResponseConfig]:
    request = messages.DescribeConfigsRequest(
        resources=[
            messages.DescribeConfigsRequestResource(
                resource_type=kind, resource_name=broker, configuration_keys=None
            )
        ],
        include_synonyms=True,
    )
    reply = await client.ask(request, messages.DescribeConfigsResponse, 4)
    assert reply.results[0].error_code == 0, reply.results[0].error_message
    return {row.name: row for row in reply.results[0].configs}


def told(row: messages.DescribeConfigsResponseConfig) -> tuple[object, ...]:
    """Value, source, and what each place says."""
    return row.value, row.config_source, [(one.value, one.source) for one in row.synonyms]
