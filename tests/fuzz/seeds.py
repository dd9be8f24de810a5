"""Good inputs to begin from: random bytes alone seldom get past a magic number."""

from random import Random

from segbroker.protocol.api_keys import SERVED_VENDOR, request_class
from segbroker.protocol.compression import Codec, compress
from segbroker.protocol.headers import encode_request
from segbroker.protocol.messages_core import (
    MetadataRequest,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from segbroker.protocol.record_batch import GapReason, encode_batch, gap_batches
from segbroker.protocol.vendor import pack

from ..protocol.random_messages import random_message
from . import directory, http, login
from .dispatch import CASES as DISPATCHED
from .targets import CASES, TARGETS

NOW_MS = 1_700_000_000_000


def of_target(name: str) -> list[bytes]:
    """Good inputs of a target, in the form that it reads."""
    assert name in TARGETS, name
    return _MAKERS[name]() if name in _MAKERS else _files(f".{_SUFFIXES[name]}", name)


def _frames() -> list[bytes]:
    return [
        bytes((1, 2, 3, 4)) + b"\0\0\0\x05hello" * 3,
        bytes(4) + b"\0\0\x03\xe8" + bytes(1000),
        b"\xff" * 4 + b"\0\0\x03\xe9",
    ]


def _request() -> list[bytes]:
    request = MetadataRequest(topics=None)
    return [
        b"".join(encode_request(request, version, 7, "fuzz"))[4:]
        for version in range(13)
        if version not in _UNENCODABLE
    ]


# In version 0 there is no null for "all topics".
_UNENCODABLE = {0}


def _messages() -> list[bytes]:
    return [
        n.to_bytes(2, "big") + b"".join(random_message(cls, version, Random(n)).encode(version))
        for n, (cls, version) in enumerate(CASES)
    ]


def _dispatched() -> list[bytes]:
    """One good body for each api and version that is served."""
    bodies = (
        [pack({"topics": ["t"], "topic": "t", "partition": 0, "from": 0, "name": "q", "batch": 1})]
        if key in SERVED_VENDOR
        else random_message(request_class(key), version, Random(n)).encode(version)
        for n, (key, version) in enumerate(DISPATCHED)
    )
    return [n.to_bytes(2, "big") + b"".join(body) for n, body in enumerate(bodies)]


def _vendor() -> list[bytes]:
    return [pack({}), pack({"a": 1, "b": [None, True, 1.5, b"x", {"c": -(2**63)}]})]


def _batches() -> list[bytes]:
    made = [
        encode_batch(
            [b"value %d" % n for n in range(5)] + [None],
            keys=[b"key", None, b"", b"k", b"k", b"k"],
            headers=[[("h", b"v"), ("n", None)]] + [[]] * 5,
            timestamps_ms=[NOW_MS + n for n in (0, 5, 3, 9, 9, 2)],
            codec=codec,
            producer_id=9,
            producer_epoch=1,
            base_sequence=0,
        )
        for codec in Codec
    ]
    made += gap_batches(10, 90, GapReason.LOST_TAIL, NOW_MS, 3)
    return [b"\0" + batch for batch in made] + [b"\1" + batch for batch in made]


def _exchanges() -> list[bytes]:
    records = encode_batch([b"value"], timestamps_ms=NOW_MS)
    part = ProduceRequestPartition(index=0, records=records)
    topic = ProduceRequestTopic(name="t", partition_data=[part])
    request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic])
    frames = [b"".join(encode_request(request, version, 7, "fuzz")) for version in (3, 8, 9, 12)]
    found = []
    for count in range(5):
        contents = [frames[n % 4] * (1 + n % 2) for n in range(count)]
        sizes = b"".join(len(content).to_bytes(2, "big") for content in contents)
        for cut in (8_000, 150, 3):
            head = bytes([count]) + cut.to_bytes(2, "big") + sizes
            found.append(head + b"".join(contents) + frames[count % 4])
    return found


def _codecs() -> list[bytes]:
    data = b"again and again, " * 50
    return [bytes([codec]) + compress(codec, data) for codec in Codec]


def _indexes() -> list[bytes]:
    files = directory.files()
    return [
        len(content).to_bytes(2, "big") + content + files[path.replace(".index", ".log")]
        for path, content in files.items()
        if path.endswith(".index")
    ]


def _directories() -> list[bytes]:
    return [bytes((n, how, 0, 9, 0xFF, 3)) for n in range(28) for how in range(5)]


_MAKERS = {
    "frames": _frames,
    "request": _request,
    "message": _messages,
    "dispatch": _dispatched,
    "login": login.seeds,
    "http": http.seeds,
    "vendor": _vendor,
    "batch": _batches,
    "exchange": _exchanges,
    "codec": _codecs,
    "index": _indexes,
    "directory": _directories,
}
_SUFFIXES = {
    "log": "log",
    "manifest": "manifest",
    "producers": "producers",
    "snapshot": "msgpack",
}


def _files(suffix: str, name: str) -> list[bytes]:
    prefix = b"\0" if name == "log" else b""
    return [prefix + data for path, data in directory.files().items() if path.endswith(suffix)]
