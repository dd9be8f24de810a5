package segbroker.spark;

import java.nio.BufferUnderflowException;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/**
 * What a task asks of the brokers besides records: who leads its partition, and where the log is now.
 *
 * <p>The log is asked for until default.api.timeout.ms, as by the driver (spark/cluster.py); the leader
 * once, because the task has pauses and a deadline of its own.
 */
final class Cluster {
    static final long BACKOFF_FIRST_MS = 50;
    static final long BACKOFF_MAX_MS = 1_000;
    private static final long NEW_TOPIC_GRACE_MS = 2_000;
    private static final long END_TIME = -1;
    private static final long START_TIME = -2;
    private static final int WITH_IDS = 12;
    private static final UUID NO_ID = new UUID(0, 0);

    private final ScanTask.Client client;
    private LinkedHashSet<ScanTask.Address> brokers = new LinkedHashSet<>();

    Cluster(ScanTask.Client client) {
        this.client = client;
    }

    /** Who leads a partition, null where there is none; the topic's id, null where it has none. */
    record Leader(ScanTask.Address address, UUID topicId) {}

    private interface Question<T> {
        T ask() throws LinkError;
    }

    private interface LinkQuestion<T> {
        T ask(Link link) throws LinkError;
    }

    /** Who leads the partition, in one try; null where there is no such topic. */
    Leader leader(String topic, int partition) throws LinkError {
        long graceMs = Link.nowMs() + NEW_TOPIC_GRACE_MS;
        while (true) {
            Leader found = look(topic, partition);
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
                    Leader leader = look(topic, partition);
                    if (leader == null || leader.address == null) {
                        return new Loss.LogBounds(0, 0, 0, "unknown");
                    }
                    return with(leader.address, link -> bounds(link, topic, partition));
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
        reply.count();
        reply.text();
        reply.count();
        reply.int32();
        int code = reply.int16();
        LinkError.check(code, "topic '" + topic + "' partition " + partition);
        reply.int64();
        return reply.int64();
    }

    private Leader look(String topic, int partition) throws LinkError {
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

    private Leader metadata(Link link, String topic, int partition) throws LinkError {
        // From 10 on with topic ids; 12 is the one of those that is spoken here.
        boolean hasIds = link.serves(Link.METADATA, WITH_IDS);
        int version = hasIds ? WITH_IDS : link.version(Link.METADATA, 4, 4);
        RequestWriter request = link.request(Link.METADATA, version);
        if (hasIds) {
            request.noTags().compactCount(1).uuid(null).compactText(topic).noTags();
            request.int8(0).int8(0).noTags();
        } else {
            request.int32(1).text(topic).int8(0);
        }
        Reply reply = link.ask(request, client.requestTimeoutMs()).flexible(hasIds);
        reply.skipTags();
        reply.int32();
        Map<Integer, ScanTask.Address> nodes = new HashMap<>();
        for (int left = reply.count(); left > 0; left--) {
            int node = reply.int32();
            nodes.put(node, new ScanTask.Address(reply.text(), reply.int32()));
            reply.text();
            reply.skipTags();
        }
        brokers = new LinkedHashSet<>(nodes.values());
        String cluster = reply.text();
        reply.int32();
        int topics = reply.count();
        if (topics != 1) {
            throw new LinkError(false, topics + " topics in the metadata of one, of cluster " + cluster);
        }
        int code = reply.int16();
        String name = reply.text();
        if (code == LinkError.UNKNOWN_TOPIC_OR_PARTITION) {
            return null;
        }
        LinkError.check(code, "topic '" + name + "'");
        UUID id = hasIds ? reply.uuid() : NO_ID;
        reply.int8();
        return new Leader(leaderOf(reply, hasIds, topic, partition, nodes), NO_ID.equals(id) ? null : id);
    }

    private static ScanTask.Address leaderOf(
            Reply reply,
            boolean hasIds,
            String topic,
            int partition,
            Map<Integer, ScanTask.Address> nodes)
            throws LinkError {
        for (int left = reply.count(); left > 0; left--) {
            reply.int16();
            int index = reply.int32();
            ScanTask.Address leader = nodes.get(reply.int32());
            if (hasIds) {
                reply.int32();
            }
            // Replicas and those in sync, and with ids those that are offline.
            for (int lists = hasIds ? 3 : 2; lists > 0; lists--) {
                reply.skip(4 * reply.count());
            }
            reply.skipTags();
            if (index == partition) {
                if (leader == null) {
                    String about = "topic '" + topic + "' partition " + partition + " has no leader";
                    throw LinkError.of(LinkError.LEADER_NOT_AVAILABLE, about);
                }
                return leader;
            }
        }
        return null;
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
