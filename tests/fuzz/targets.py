"""What must hold for any bytes: one function per entrance, raising when it does not.

| target | entrance | what holds |
|---|---|---|
| frames | FrameReader | the frames that the definition gives, however the bytes are cut |
| request | requests with their headers | an answer or ProtocolError |
| dispatch | a whole broker, each api and version that it serves | dispatch.py |
| login | SASL messages, of servers and of clients | login.py |
| message | message decoders | the same; what decodes, encodes to a fixed point |
| http | a connection of the metrics page | http.py |
| vendor | msgpack bodies | an answer or RemoteProtocolError; what decodes comes back |
| batch | record batch, both twins | the same verdict and the same records from C and Python |
| exchange | receiving from many and answering them, both twins | the same bytes, rows, batches |
| codec | decompression | at most the allowed size, or DecompressionError |
| log, index, manifest, producers, snapshot | their dump | a report, never an exception |
| directory | the storage engine | an error that it may raise; never a wrong record |

An input begins with the few bytes that choose among a target's cases; the rest is the data.  What
is an error by contract is caught here; whatever comes out of a target is a finding.  Targets are
plain functions on bytes, so that Hypothesis, atheris and a person with a crash file share them.
"""

from array import array
from collections.abc import Callable
from contextlib import ExitStack, suppress
from socket import socket, socketpair
from types import ModuleType
from typing import Final

from segbroker.broker.producing.exchange import RESULTS, Exchange
from segbroker.cli.index_dump import dump_index
from segbroker.cli.log_dump import dump_log
from segbroker.cli.manifest_dump import dump_manifest
from segbroker.cli.state_dump import dump_metadata, dump_producers
from segbroker.protocol import batch_pure, kernel
from segbroker.protocol.batch_layout import ATTRIBUTES_POSITION, CRC_POSITION, HEADER_SIZE
from segbroker.protocol.checksums import crc32c
from segbroker.protocol.compression import Codec, DecompressionError, compress, decompress
from segbroker.protocol.errors import ProtocolError, RemoteProtocolError
from segbroker.protocol.frames import FrameReader
from segbroker.protocol.headers import decode_request, parse_request_header
from segbroker.protocol.kernel import KERNEL_IS_NATIVE
from segbroker.protocol.produce_scan import Column
from segbroker.protocol.record_batch import (
    InvalidBatch,
    Record,
    check_batch,
    decode_batch,
    first_at_or_after,
    iter_batches,
    read_header,
)
from segbroker.protocol.vendor import pack, unpack
from segbroker.segments.errors import StorageError

from ..protocol.random_messages import classes_and_versions
from ..support.thinned import filter_batch
from . import directory
from .dispatch import dispatch
from .http import http
from .login import login

Target = Callable[[bytes], None]

FRAME_SIZE_MAX: Final = 1000
OUTPUT_SIZE_MAX: Final = 1 << 16
CASES: Final = classes_and_versions()
# The one that this build uses comes last; without a C compiler there is one.
EXCHANGES: Final = [Exchange(1 << 14, 12, native=native) for native in {KERNEL_IS_NATIVE, False}]
TWINS: Final[tuple[ModuleType, ...]] = tuple(
    {batch_pure.__name__: batch_pure, kernel.backend.__name__: kernel.backend}.values()
)


def frames(data: bytes) -> None:
    pieces, stream = data[:4], data[4:]
    expected, refused = frames_by_definition(stream)
    reader = FrameReader(FRAME_SIZE_MAX)
    got: list[bytes] = []
    was_refused = False
    position = 0
    turn = 0
    while position < len(stream) and not was_refused:
        size = 1 + (pieces[turn % len(pieces)] if pieces else 0)
        reader.receive_data(stream[position : position + size])
        position += size
        turn += 1
        try:
            while (frame := reader.next_frame()) is not None:
                got.append(bytes(frame))
        except RemoteProtocolError:
            was_refused = True
    assert got == expected, f"{got} instead of {expected}"
    assert was_refused == refused, f"refused {was_refused} instead of {refused}"


def frames_by_definition(stream: bytes) -> tuple[list[bytes], bool]:
    """The frames in a stream, and whether a wrong size ends it: docs/protocol.md, word by word."""
    found: list[bytes] = []
    position = 0
    while len(stream) - position >= 4:
        size = int.from_bytes(stream[position : position + 4], "big", signed=True)
        if not 4 <= size <= FRAME_SIZE_MAX:
            return found, True
        if len(stream) - position - 4 < size:
            break
        found.append(stream[position + 4 : position + 4 + size])
        position += 4 + size
    return found, False


def request(data: bytes) -> None:
    with suppress(ProtocolError):
        decode_request(data, parse_request_header(data))


def message(data: bytes) -> None:
    choice, body = int.from_bytes(data[:2], "big"), data[2:]
    cls, version = CASES[choice % len(CASES)]
    try:
        decoded, _ = cls.decode(body, version)
    except ProtocolError:
        return
    once = b"".join(decoded.encode(version))
    again, size = cls.decode(once, version)
    assert size == len(once), f"{cls.__name__} version {version} leaves bytes that it wrote"
    twice = b"".join(again.encode(version))
    assert once == twice, f"{cls.__name__} version {version} is not the same after a round trip"


def vendor(data: bytes) -> None:
    try:
        body = unpack(data)
    except RemoteProtocolError:
        return
    again = unpack(pack(body))
    assert repr(again) == repr(body), f"{body} came back as {again}"  # repr: NaN is unlike itself


def batch(data: bytes) -> None:
    """Wrong lengths and checksums are soon refused; so they are mostly put right before."""
    choice, content = data[:1], bytearray(data[1:])
    if choice and choice[0] & 1 and len(content) >= HEADER_SIZE:
        content[8:12] = (len(content) - 12).to_bytes(4, "big")
        content[16] = 2
        content[CRC_POSITION:ATTRIBUTES_POSITION] = crc32c(
            bytes(content[ATTRIBUTES_POSITION:])
        ).to_bytes(4, "big")
    verdicts = [_look_at(bytes(content), twin) for twin in TWINS]
    assert all(verdict == verdicts[0] for verdict in verdicts), f"twins differ: {verdicts}"


def _look_at(content: bytes, twin: ModuleType) -> list[object]:
    """All that one twin makes of a batch."""
    kernel.use(twin)
    try:
        seen: list[object] = []
        for stored in (False, True):
            try:
                seen.append(check_batch(content, stored=stored))
            except InvalidBatch as exc:
                seen.append(exc.fault)
        seen.append(twin.until_gap(content, array("q", [0, 1 << 40])))
        try:
            if len(content) >= HEADER_SIZE:
                read_header(content)
            seen.append([bytes(part) for part in iter_batches(content)])
        except InvalidBatch as exc:
            seen.append(exc.fault)
        try:
            records: list[Record] = decode_batch(content, size_max=OUTPUT_SIZE_MAX).records()
            seen.append(records)
            seen.append(first_at_or_after(content, 1_700_000_000_000))
            if isinstance(seen[1], tuple) and records:
                seen.append(filter_batch(content, {records[0].offset}, 1_700_000_000_000))
        except InvalidBatch as exc:
            seen.append(exc.fault)
        return seen
    finally:
        kernel.use(TWINS[-1])


def exchange(data: bytes) -> None:
    """Begins with how many connections there are and how it is cut (two), then the bytes of each
    (two) but the last."""
    count, cut = data[0] % 5 if data else 0, int.from_bytes(data[1:3], "big")
    sizes = [int.from_bytes(data[3 + 2 * n : 5 + 2 * n], "big") for n in range(count)]
    stream = data[3 + 2 * count :]
    contents = []
    for size in sizes:
        contents.append(stream[:size])
        stream = stream[size:]
    seen = [_exchange(scan, [*contents, stream], cut) for scan in EXCHANGES]
    assert all(one == seen[0] for one in seen), "C and its twin differ"


def _exchange(scan: Exchange, contents: list[bytes], cut: int) -> list[object]:
    """Receive by two calls, the second what the first has left, and answer every row."""
    fds, theirs = array("i"), list[socket]()
    seen: list[object] = []
    end = first = 0
    with ExitStack() as stack:
        for content in contents:
            one, other = socketpair()
            for end_of_pair in (one, other):
                stack.enter_context(end_of_pair)
                end_of_pair.setblocking(False)
            other.send(content[: len(scan.data)])
            fds.append(one.fileno())
            theirs.append(other)
        most = 1 + cut % (len(scan.data) // 2)
        for least in (1, 1 + cut % 100):
            count = scan.receive(fds, end, first, least=least, most=most)
            results = scan.results[: count * RESULTS]
            rows = array("i", results[3::RESULTS])
            sent = scan.reply(
                fds[:count],
                array("i", results[2::RESULTS]),
                rows,
                frame=bytes(32),
                offset_at=cut % 25,
                correlations=array("q", range(scan.rows_max)),
                offsets=[cut << n for n in range(scan.rows_max)],
            )
            seen += [results, sent]
            end += sum(max(size, 0) for size in results[1::RESULTS])
            first += sum(rows)
        seen += [_whatever_came(other) for other in theirs]
    gathered = array("i", range(first))
    size = sum(scan.columns[Column.RECORDS_SIZE * scan.rows_max + row] for row in gathered)
    batches, fields = scan.gather(gathered, size)
    return [*seen, bytes(scan.data[:end]), bytes(batches), fields]


def _whatever_came(sock: socket) -> bytes:
    with suppress(BlockingIOError):
        return sock.recv(1 << 16)
    return b""


def codec(data: bytes) -> None:
    if not data:
        return
    chosen, content = Codec(data[0] % len(Codec)), data[1:]
    with suppress(DecompressionError):
        assert len(decompress(chosen, content, OUTPUT_SIZE_MAX)) <= OUTPUT_SIZE_MAX
    if len(content) <= OUTPUT_SIZE_MAX:
        back = decompress(chosen, compress(chosen, content), OUTPUT_SIZE_MAX)
        assert back == content, f"{chosen.name} does not bring back what it was given"


def log(data: bytes) -> None:
    dump_log(data[1:], later_segment=data[:1] == b"\1", with_records=True)


def index(data: bytes) -> None:
    size = int.from_bytes(data[:2], "big")
    dump_index(data[2 : 2 + size], data[2 + size :] or None)


def manifest(data: bytes) -> None:
    dump_manifest(data)


def producers(data: bytes) -> None:
    dump_producers(data)


def snapshot(data: bytes) -> None:
    dump_metadata(data, "snapshot-1.msgpack")


def damaged_directory(data: bytes) -> None:
    storage = directory.damage(data)
    # A file that is gone is the operating system's error, and the broker takes it as such.
    with suppress(StorageError, OSError):
        directory.check(storage)


TARGETS: Final[dict[str, Target]] = {
    "frames": frames,
    "request": request,
    "dispatch": dispatch,
    "message": message,
    "login": login,
    "http": http,
    "vendor": vendor,
    "batch": batch,
    "exchange": exchange,
    "codec": codec,
    "log": log,
    "index": index,
    "manifest": manifest,
    "producers": producers,
    "snapshot": snapshot,
    "directory": damaged_directory,
}
