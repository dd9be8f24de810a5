package segbroker.spark;

import java.nio.BufferUnderflowException;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;

/**
 * What a task asks of the brokers besides records: who leads its partition, and where the log is now.
 *
 * <p>Each question is tried again until default.api.timeout.ms, as by the driver (spark/cluster.py).
 */
final class Cluster {
    static final long BACKOFF_FIRST_MS = 50;
    static final long BACKOFF_MAX_MS = 1_000;
    private static final long NEW_TOPIC_GRACE_MS = 2_000;
    private static final long END_TIME = -1;
    private static final long START_TIME = -2;

    private final ScanTask.Client client;
    private LinkedHashSet<ScanTask.Address> brokers = new LinkedHashSet<>();

    Cluster(ScanTask.Client client) {
        this.client = client;
    }

    private interface Question<T> {
        T ask() throws LinkError;
    }

    private interface LinkQuestion<T> {
        T ask(Link link) throws LinkError;
    }

    /** Who leads the partition; null where there is no such partition. */
    ScanTask.Address leader(String topic, int partition) {
        long graceMs = Link.nowMs() + NEW_TOPIC_GRACE_MS;
        while (true) {
            ScanTask.Address found = persist("topics", () -> look(topic, partition));
            if (found != null || Link.nowMs() >= graceMs) {
                return found;
            }
            Backoff.sleep(BACKOFF_FIRST_MS);
        }
    }

    /** Where the log is now, and why it starts there; empty where there is no such partition. */
    Loss.LogBounds bounds(String topic, int partition) {
        return persist(
                "log bounds",
                () -> {
                    ScanTask.Address leader = look(topic, partition);
                    if (leader == null) {
                        return new Loss.LogBounds(0, 0, 0, "unknown");
                    }
                    return with(leader, link -> bounds(link, topic, partition));
                });
    }

    private Loss.LogBounds bounds(Link link, String topic, int partition) throws LinkError {
        if (link.serves(Link.FLOORS)) {
            return floors(link, topic, partition);
        }
        long start = offset(link, topic, partition, START_TIME);
        return new Loss.LogBounds(start, offset(link, topic, partition, END_TIME), start, "unknown");
    }

    private Loss.LogBounds floors(Link link, String topic, int partition) throws LinkError {
        RequestWriter request = link.request(Link.FLOORS, 0);
        Reply reply = link.ask(request.raw(Msgpack.askFloors(topic, partition)), client.requestTimeoutMs());
        Map<?, ?> body = (Map<?, ?>) Msgpack.read(reply.rest());
        check(body, "floors");
        Map<?, ?> row = (Map<?, ?>) ((List<?>) body.get("partitions")).get(0);
        check(row, "topic '" + topic + "' partition " + partition);
        Object word = row.get("evict_reason");
        return new Loss.LogBounds(
                (Long) row.get("log_start_offset"),
                (Long) row.get("high_watermark"),
                (Long) row.get("evict_floor"),
                word == null ? "unknown" : word.toString());
    }

    private static void check(Map<?, ?> body, String about) throws LinkError {
        if (body.get("error") instanceof Map<?, ?> error) {
            throw LinkError.of(((Long) error.get("code")).intValue(), about);
        }
    }

    private long offset(Link link, String topic, int partition, long time) throws LinkError {
        int version = link.version(Link.LIST_OFFSETS, 1, 2);
        RequestWriter request = link.request(Link.LIST_OFFSETS, version).int32(-1);
        if (version >= 2) {
            request.int8(0);
        }
        request.int32(1).text(topic).int32(1).int32(partition).int64(time);
        Reply reply = link.ask(request, client.requestTimeoutMs());
        if (version >= 2) {
            reply.int32();
        }
        reply.skip(0 * reply.count());
        reply.text();
        reply.count();
        reply.int32();
        int code = reply.int16();
        if (code != LinkError.NONE) {
            throw LinkError.of(code, "topic '" + topic + "' partition " + partition);
        }
        reply.int64();
        return reply.int64();
    }

    private ScanTask.Address look(String topic, int partition) throws LinkError {
        LinkError last = null;
        LinkedHashSet<ScanTask.Address> asked = new LinkedHashSet<>(brokers);
        asked.addAll(client.bootstrap());
        for (ScanTask.Address address : asked) {
            try {
                return with(address, link -> metadata(link, topic, partition));
            } catch (LinkError exc) {
                if (!exc.retryable) {
                    throw exc;
                }
                last = exc;
            }
        }
        throw last;
    }

    private ScanTask.Address metadata(Link link, String topic, int partition) throws LinkError {
        int version = link.version(Link.METADATA, 4, 4);
        RequestWriter request = link.request(Link.METADATA, version).int32(1).text(topic).int8(0);
        Reply reply = link.ask(request, client.requestTimeoutMs());
        reply.int32();
        Map<Integer, ScanTask.Address> nodes = new HashMap<>();
        for (int left = reply.count(); left > 0; left--) {
            nodes.put(reply.int32(), new ScanTask.Address(reply.text(), reply.int32()));
            reply.text();
        }
        brokers = new LinkedHashSet<>(nodes.values());
        reply.text();
        reply.int32();
        ScanTask.Address leader = null;
        for (int topics = reply.count(); topics > 0; topics--) {
            int code = reply.int16();
            reply.text();
            reply.int8();
            if (code == LinkError.UNKNOWN_TOPIC_OR_PARTITION) {
                return null;
            }
            if (code != LinkError.NONE) {
                throw LinkError.of(code, "topic '" + topic + "'");
            }
            for (int partitions = reply.count(); partitions > 0; partitions--) {
                reply.int16();
                int index = reply.int32();
                int node = reply.int32();
                reply.skip(4 * reply.count());
                reply.skip(4 * reply.count());
                if (index == partition) {
                    leader = nodes.get(node);
                    if (leader == null) {
                        String about = "topic '" + topic + "' partition " + partition + " has no leader";
                        throw LinkError.of(LinkError.LEADER_NOT_AVAILABLE, about);
                    }
                }
            }
        }
        return leader;
    }

    private <T> T with(ScanTask.Address address, LinkQuestion<T> question) throws LinkError {
        Link link = Links.take(address, client);
        boolean isDone = false;
        try {
            T answer = question.ask(link);
            isDone = true;
            return answer;
        } catch (BufferUnderflowException | ClassCastException | NullPointerException exc) {
            throw new LinkError(false, address + ": a reply that cannot be read", exc);
        } finally {
            if (isDone) {
                Links.giveBack(link, client);
            } else {
                link.close();
            }
        }
    }

    /** Try until it works, the error is final, or the deadline is over. */
    private <T> T persist(String what, Question<T> question) {
        long deadlineMs = Link.nowMs() + client.apiTimeoutMs();
        long firstMs = client.retryBackoffMs() > 0 ? client.retryBackoffMs() : BACKOFF_FIRST_MS;
        Backoff backoff = new Backoff(firstMs, Math.max(firstMs, BACKOFF_MAX_MS));
        for (int tries = 1; ; tries++) {
            try {
                return question.ask();
            } catch (LinkError exc) {
                String asking = "asking for " + what + ": ";
                if (!exc.retryable) {
                    throw new SourceError.SourceUnavailable(asking + exc.getMessage(), exc);
                }
                if (tries == client.triesMax()) {
                    throw new SourceError.SourceUnavailable(
                            asking + tries + " tries (fetchOffset.numRetries); last: " + exc.getMessage(),
                            exc);
                }
                long delayMs = backoff.nextDelayMs();
                if (Link.nowMs() + delayMs >= deadlineMs) {
                    throw new SourceError.SourceUnavailable(
                            asking + "nothing within " + client.apiTimeoutMs()
                                    + " ms (kafka.default.api.timeout.ms); last: " + exc.getMessage(),
                            exc);
                }
                Backoff.sleep(delayMs);
            }
        }
    }
}
