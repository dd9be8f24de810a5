"""confluent-kafka's serializers with a schema registry.

    python registry_steps.py REGISTRY BROKER VERB

    write   registers an Avro, a JSON and a Protobuf schema, and writes 20 records with each
    read    reads all of them back with the deserializers, from the start, and prints how many
    grow    registers a second version of the Avro schema, and a third that does not go with it

What a record has is its number; a wrong one ends the program.
"""

import sys
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.wrappers_pb2 import Int64Value

COUNT: Final = 20
AVRO: Final = '{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}%s]}'
GROWN: Final = AVRO % ', {"name": "note", "type": "string", "default": ""}'
UNLIKE: Final = AVRO % ', {"name": "must", "type": "string"}'
JSON: Final = (
    '{"title": "Order", "type": "object", "properties": {"n": {"type": "integer"}},'
    ' "required": ["n"]}'
)

Registry = SchemaRegistryClient
# Topic -> serializer, deserializer, a value from its number, the number of a value.
KINDS: Final[dict[str, tuple[Callable[[Registry], Any], Callable[[Registry], Any], Any, Any]]] = {
    "avro": (
        lambda registry: AvroSerializer(registry, AVRO % ""),
        AvroDeserializer,
        lambda n: {"n": n},
        lambda value: value["n"],
    ),
    "json": (
        lambda registry: JSONSerializer(JSON, registry),
        lambda _: JSONDeserializer(JSON),
        lambda n: {"n": n},
        lambda value: value["n"],
    ),
    "protobuf": (
        lambda registry: ProtobufSerializer(Int64Value, registry, {"use.deprecated.format": False}),
        lambda _: ProtobufDeserializer(Int64Value, {"use.deprecated.format": False}),
        lambda n: Int64Value(value=n),
        lambda value: value.value,
    ),
}


def write(registry: Registry, broker: str) -> int:
    producer = Producer({"bootstrap.servers": broker})
    for topic, (serializer, _, made, _) in KINDS.items():
        serialize, where = serializer(registry), SerializationContext(topic, MessageField.VALUE)
        for n in range(COUNT):
            producer.produce(topic, serialize(made(n), where), partition=0)
    assert producer.flush(60) == 0
    return COUNT * len(KINDS)


def read(registry: Registry, broker: str) -> int:
    total = 0
    for topic, (_, deserializer, _, number) in KINDS.items():
        deserialize, where = deserializer(registry), SerializationContext(topic, MessageField.VALUE)
        consumer = Consumer({"bootstrap.servers": broker, "group.id": "reads"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), 60)[1]
        for n in range(end):
            (message,) = consumer.consume(1, 60)
            assert message.error() is None, message.error()
            got = number(deserialize(message.value(), where))
            assert got == n % COUNT, (topic, n, got)
        consumer.close()
        total += end
    return total


def grow(registry: Registry, broker: str) -> int:
    registry.set_compatibility("avro-value", "BACKWARD")
    registry.register_schema("avro-value", Schema(GROWN, "AVRO"))
    assert not registry.test_compatibility("avro-value", Schema(UNLIKE, "AVRO"))
    return len(registry.get_versions("avro-value"))


if __name__ == "__main__":
    REGISTRY, BROKER, VERB = sys.argv[1:]
    print({"write": write, "read": read, "grow": grow}[VERB](Registry({"url": REGISTRY}), BROKER))
