"""Produce and consume beside the other brokers: 100 B, 1 KiB, 16 KiB; rounds alternate.

Kafka's protocol is driven by librdkafka, the others by ready-made requests over one raw socket,
which costs the client next to nothing: librdkafka's own work counts against us there, so a second
row drives us by raw sockets too.  All servers run all the time; only one has work.
"""

from . import peers
from .machine import cpu_seconds, resident_mib
from .report import Entry, Note, Row, Runs, rate

ROUNDS = 2
WARM_UP = 200_000
WORKS = ((100, 400_000), (1024, 150_000), (16 * 1024, 10_000))
GOALS = {
    ("produce", "Redis", 100): "≥ 4",
    ("produce", "RabbitMQ", 100): "≥ 2",
    ("produce", "ApacheKafka", 100): "≥ 1",
    ("produce", "ApacheKafka", 1024): "≥ 1",
    ("consume", "Redis", 100): "≥ 1.5",
    ("consume", "RabbitMQ", 100): "≥ 1.5",
    ("consume", "ApacheKafka", 100): "≥ 1",
    ("consume", "ApacheKafka", 1024): "≥ 1",
}


def described(peer: peers.Peer, durable: bool = False) -> Note:
    """Name, version and what its acknowledgement means."""
    return Note(f"{peer.name} {peer.version}: {peer.synced if durable else peer.stored}")


def rows(quick: bool = False) -> list[Entry]:
    found: list[Entry] = []
    with peers.running() as (ours, others, left_out):
        everyone: list[peers.Peer] = [ours, *others]
        for peer in everyone:  # the Java and Erlang machines compile as they go
            topic, count = peer.create_topic(), WARM_UP // 20 if quick else WARM_UP
            peer.produce(topic, count, 100)
            peer.consume(topic, count, 100)
        for size, full in WORKS:
            count = full // 20 if quick else full
            runs = Runs()
            cpu: dict[tuple[str, str], float] = {}
            for _ in range(1 if quick else ROUNDS):
                for peer in everyone:
                    topic = peer.create_topic()
                    for work, run in (("produce", peer.produce), ("consume", peer.consume)):
                        before = cpu_seconds(peer.pid)
                        runs.note(f"{work} {peer.name}", run(topic, count, size))
                        cpu[work, peer.name] = (cpu_seconds(peer.pid) - before) * 1e6 / count
                topic = ours.create_topic()
                runs.note("raw produce", peers.Peer.produce(ours, topic, count, size))
                runs.note("raw consume", peers.Peer.consume(ours, topic, count, size))
            for work in ("produce", "consume"):
                mine = runs.median(f"{work} {ours.name}")
                for peer in others:
                    theirs = runs.median(f"{work} {peer.name}")
                    found.append(
                        Row(
                            f"{work} {count:,} × {size} B, ours by librdkafka",
                            "disk",
                            rate(mine, size),
                            f"{peer.name} {rate(theirs, size)}",
                            f"{mine / theirs:.2f}",
                            GOALS.get((work, type(peer).__name__, size), "–"),
                            f"{cpu[work, ours.name]:.2f} µs CPU/record, {peer.name} "
                            f"{cpu[work, peer.name]:.2f}",
                        )
                    )
                    if type(peer) is not peers.ApacheKafka:
                        bare = runs.median(f"raw {work}")
                        found.append(
                            Row(
                                f"{work} {count:,} × {size} B, both by raw sockets",
                                "disk",
                                rate(bare, size),
                                f"{peer.name} {rate(theirs, size)}",
                                f"{bare / theirs:.2f}",
                            )
                        )
        found += [described(peer) for peer in everyone]
        memory = ", ".join(f"{peer.name} {resident_mib(peer.pid):.0f} MiB" for peer in everyone)
        found.append(Note(f"Resident memory afterwards: {memory}."))
        found += [Note(reason) for reason in left_out]
    return found
