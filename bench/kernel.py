"""What the batch kernel costs: ns per record, GB/s of CRC-32C; `python -m bench.kernel`.

One core, data in the cache, the best of several runs; the pure twin beside it.  No sockets, no
disk: the ceilings that the broker and the clients start from.
"""

import sys
from collections.abc import Callable
from time import perf_counter_ns

from segbroker.protocol import batch_pure, kernel
from segbroker.protocol.checksums import crc32c, crc32c_portable, xxh3_64
from segbroker.protocol.record_batch import check_batch, decode_batch, encode_batch

RUNS = 9


def best_ns(work: Callable[[], object], repeat: int) -> float:
    times = []
    for _ in range(RUNS):
        start = perf_counter_ns()
        for _ in range(repeat):
            work()
        times.append((perf_counter_ns() - start) / repeat)
    return min(times)


def report(name: str, ns: float, unit: str) -> None:
    sys.stdout.write(f"  {name:44}{ns:10.1f} {unit}\n")


def checksums() -> None:
    sys.stdout.write("checksums\n")
    for size in (100, 16 * 1024, 1024 * 1024):
        data = bytes(range(256)) * (size // 256 + 1)
        data = data[:size]
        for function in (crc32c, crc32c_portable, xxh3_64):
            ns = best_ns(lambda f=function, d=data: f(d), 100_000_000 // (size + 100_000))  # type: ignore[misc]
            report(f"{function.__name__} of {size} bytes", size / ns, f"GB/s {ns:12.0f} ns")


def records(count: int, size: int, repeat: int) -> None:
    values = [bytes([i & 0xFF]) * size for i in range(count)]
    keys = [b"key-%d" % i for i in range(count)]
    headers = [[("segbroker.tag", b"t")]] * count
    batch = encode_batch(values, timestamps_ms=1_700_000_000_000)
    full = encode_batch(values, keys=keys, headers=headers, timestamps_ms=1_700_000_000_000)
    decoded, decoded_full = decode_batch(batch), decode_batch(full)
    work: dict[str, Callable[[], object]] = {
        "encode, values": lambda: encode_batch(values, timestamps_ms=1),
        "encode, values and keys": lambda: encode_batch(values, keys=keys, timestamps_ms=1),
        "encode, values, keys, headers": lambda: encode_batch(
            values, keys=keys, headers=headers, timestamps_ms=1
        ),
        "check as produced": lambda: check_batch(batch),
        "decode to an index": lambda: decode_batch(batch),
        "decode and values()": lambda: decode_batch(batch).values(),
        "decode and records()": lambda: decode_batch(batch).records(),
        "decode and columns() for Arrow": lambda: decode_batch(batch).columns(),
        "decode and records() with keys, headers": lambda: decode_batch(full).records(),
        "values() alone": decoded.values,
        "records() alone": decoded.records,
        "columns() with keys, headers, alone": decoded_full.columns,
    }
    for name, function in work.items():
        report(name, best_ns(function, repeat) / count, "ns/record")


def main() -> None:
    checksums()
    for backend in dict.fromkeys((kernel.backend, batch_pure)):
        for count, size in ((1, 100), (1000, 100), (1000, 1024)):
            sys.stdout.write(f"{backend.__name__}: {count} x {size} B\n")
            kernel.use(backend)
            pure = backend is batch_pure
            records(count, size, max(1, (200 if not pure else 5) * 1000 // (count * 10)))


if __name__ == "__main__":
    main()
