"""Frames as no encoder makes them: whether they are answered, or end the connection."""

import struct
from typing import Final

import trio

from segbroker.protocol.api_keys import ApiKey

from ..support.wire_client import Closed
from .cases import case
from .stage import ANSWER_TIMEOUT_S, Stage


def head(key: int, version: int, client: bytes | None = b"c") -> bytes:
    """A header without tagged fields."""
    size = -1 if client is None else len(client)
    return struct.pack(">hhih", key, version, 7, size) + (client or b"")


def text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def compact(value: bytes) -> bytes:
    return bytes([len(value) + 1]) + value


VERSIONS, METADATA, PRODUCE = ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.PRODUCE
SOFTWARE: Final = compact(b"soft") + compact(b"1") + b"\0"
NONE, ONE = struct.pack(">i", 0), struct.pack(">i", 1)
# No transactional id, acks, a timeout; then: how many topics.
TO_PRODUCE: Final = struct.pack(">hhi", -1, 1, 1_000)

FRAMES: Final[dict[str, bytes]] = {
    "nothing": b"",
    "half a header": b"\0\3\0\1\0\0\0",
    "an unknown api": head(1_000, 0),
    "an api below 0": head(-1, 0),
    "a version to come": head(METADATA, 99) + b"\0",
    "a version below 0": head(METADATA, -1) + NONE,
    "a version of before": head(ApiKey.FETCH, 3) + bytes(40),
    "versions, and more": head(VERSIONS, 0) + b"\1\2\3",
    "versions to come": head(VERSIONS, 99) + b"\0" + SOFTWARE,
    "versions below 0": head(VERSIONS, -1),
    "versions without a body": head(VERSIONS, 3) + b"\0",
    "software without a name": head(VERSIONS, 3) + b"\0" + compact(b"") * 2 + b"\0",
    "software of null": head(VERSIONS, 3) + b"\0\0" + compact(b"1") + b"\0",
    "software of two words": head(VERSIONS, 3) + b"\0" + compact(b"a b") + compact(b"1") + b"\0",
    "an unknown tag": head(VERSIONS, 3) + b"\0" + SOFTWARE[:-1] + b"\1\x09\2ab",
    "an unknown tag of the header": head(VERSIONS, 3) + b"\1\5\3abc" + SOFTWARE,
    "a tag twice": head(VERSIONS, 3) + b"\0" + SOFTWARE[:-1] + b"\2\x09\2ab\x09\2ab",
    "tags in disorder": head(VERSIONS, 3) + b"\0" + SOFTWARE[:-1] + b"\2\x0a\2ab\x09\2ab",
    "a longer length": head(VERSIONS, 3) + b"\0\x85\x80\x80\x80\0soft" + SOFTWARE[5:],
    "a client without a name": head(METADATA, 4, None) + NONE + b"\0",
    "a client that is no UTF-8": head(METADATA, 4, b"\xff\xfe") + NONE + b"\0",
    "a topic that is no UTF-8": head(METADATA, 4) + ONE + text(b"\xff\xfe") + b"\0",
    "a topic of null": head(METADATA, 1) + ONE + struct.pack(">h", -1),
    "topics of null in version 0": head(METADATA, 0) + struct.pack(">i", -1),
    "fewer topics than said": head(METADATA, 4) + ONE,
    "topics, and more": head(METADATA, 1) + NONE + b"\0\0",
    "a truth of 2": head(METADATA, 4) + NONE + b"\2",
    "produce to null": head(PRODUCE, 3) + TO_PRODUCE + struct.pack(">i", -1),
    "records of null": head(PRODUCE, 3)
    + TO_PRODUCE
    + (ONE + text(b"frames") + struct.pack(">iii", 1, 0, -1)),
    "coordinator of null": head(ApiKey.FIND_COORDINATOR, 0) + struct.pack(">h", -1),
    "settings of null": head(ApiKey.DESCRIBE_CONFIGS, 1) + struct.pack(">ib", -1, 0),
    "create null": head(ApiKey.CREATE_TOPICS, 2) + struct.pack(">iib", -1, 1_000, 0),
    "delete null": head(ApiKey.DELETE_TOPICS, 1) + struct.pack(">ii", -1, 1_000),
    "delete a topic of null": head(ApiKey.DELETE_TOPICS, 1) + struct.pack(">ihi", 1, -1, 1_000),
    "groups, and more": head(ApiKey.LIST_GROUPS, 0) + b"more",
}


@case(ApiKey.API_VERSIONS)
async def frames_as_no_encoder_makes_them(stage: Stage) -> None:
    if stage.version:
        return  # they say their own
    for label, frame in FRAMES.items():
        async with stage.another() as other:
            await other.client.send_bytes(struct.pack(">i", len(frame)) + frame)
            with trio.fail_after(ANSWER_TIMEOUT_S):
                try:
                    answer = await other.client.receive_frame()
                except Closed:
                    stage.seen[label] = {"": "closed"}
                    continue
        # Of ApiVersions the code is the first that is said.
        code = answer[4:6].hex() if label.startswith(("versions", "software")) else ""
        stage.seen[label] = {"": "answered", "code": code}
