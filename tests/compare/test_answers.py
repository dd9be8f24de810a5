"""How two answers become a list of differences."""

from uuid import uuid4

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.messages_core import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    ProduceResponse,
    ProduceResponseTopic,
)
from segbroker.protocol.messages_quotas import (
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntry,
    ClientQuotaEntity,
)

from .accepted import ACCEPTED
from .answers import ABSENT, ROW, Difference, Fields, differences, flatten
from .rules import NORMALISED, acceptance, normalised


def answer(*topics: str, node: int = 1, port: int = 9092) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=port)],
        topics=[
            MetadataResponseTopic(
                name=topic,
                partitions=[
                    MetadataResponsePartition(
                        partition_index=0, leader_id=node, replica_nodes=[node], isr_nodes=[node]
                    )
                ],
            )
            for topic in topics
        ],
    )


def compared(theirs: MetadataResponse, ours: MetadataResponse) -> list[Difference]:
    flat = (normalised(ApiKey.METADATA, flatten(one, 9, "case")) for one in (theirs, ours))
    return list(differences(*flat))


def test_the_order_of_rows_and_the_place_of_the_broker_are_not_compared() -> None:
    assert compared(answer("case-a", "case-b"), answer("case-b", "case-a", port=1)) == []


def test_each_field_that_differs_is_one_difference() -> None:
    found = compared(answer("case-a"), answer("case-a", node=2))
    row = "topics[~-a].partitions[0]"
    assert found == [
        Difference(f"{row}.leader_id", 1, 2),
        Difference(f"{row}.replica_nodes", [1], [2]),
        Difference(f"{row}.isr_nodes", [1], [2]),
    ]


def test_a_row_too_many_is_one_difference_whatever_is_in_it() -> None:
    found = compared(answer("case-a"), answer("case-a", "case-b"))
    assert found == [Difference("topics[~-b]", ABSENT, ROW)]


def test_a_difference_is_accepted_for_its_api_its_field_and_its_request_only() -> None:
    path = "responses[~].partition_responses[0].error_code"
    known = Difference(path, 2, 43)
    assert acceptance(ApiKey.PRODUCE, "magic 3", known) is not None
    assert acceptance(ApiKey.PRODUCE, "wrong checksum", known) is None
    assert acceptance(ApiKey.FETCH, "magic 3", known) is None
    assert acceptance(ApiKey.PRODUCE, "magic 3", Difference(path, 2, 0)) is None


def test_every_rule_has_a_reason() -> None:
    reasons = [rule.reason for rule in ACCEPTED] + [rule.reason for rule in NORMALISED]
    assert all(reasons)


def test_rows_are_told_apart_by_the_topic_behind_an_id_and_by_whose_quotas_they_are() -> None:
    ids = [uuid4(), uuid4()]
    names = {ids[0]: "case-a", ids[1]: "case-b"}

    def produced(*order: int) -> Fields:
        rows = [ProduceResponseTopic(topic_id=ids[n], partition_responses=[]) for n in order]
        return flatten(ProduceResponse(responses=rows), 13, "case", names)

    assert "responses[~-b].topic_id" in produced(0, 1)
    assert produced(0, 1) == produced(1, 0)

    def changed(*kinds: str) -> Fields:
        parts = [ClientQuotaEntity(entity_type=kind, entity_name="n") for kind in kinds]
        row = AlterClientQuotasResponseEntry(error_message=None, entity=parts)
        return flatten(AlterClientQuotasResponse(entries=[row]), 0, "case")

    assert "entries[client-id=n+user=n].entity[user].entity_name" in changed("user", "client-id")
    assert changed("user", "client-id") == changed("client-id", "user")
