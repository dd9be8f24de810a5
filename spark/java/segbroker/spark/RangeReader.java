package segbroker.spark;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * The records of one range, fetched by an executor: one fetch ahead, over a connection that stays.
 *
 * <p>The twin of spark/fetching.py, rule for rule: what it says of retries, deadlines, gaps, loss and
 * aborted transactions holds here, with the same sentences.
 *
 * <p>A reply gives one ColumnarBatch that looks into the reply's buffer, or one per ROWS_BYTES of
 * unpacked records where its batches are compressed. Spark is done with it before it asks for the
 * next, as the contract of columnar readers has it; the buffers are used again.
 *
 * <p>Invariant: each record of the range comes once, in order.
 */
final class RangeReader implements PartitionReader<ColumnarBatch> {
    private static final int FETCH_BYTES_MIN = 16 << 10;
    private static final int RECORD_BYTES_GUESS = 1 << 10;
    /** How much is unpacked for one ColumnarBatch. */
    private static final int ROWS_BYTES = 4 << 20;
    /** A new leader may know its high watermark late: how long an end below the range is doubted. */
    private static final int SHORT_LOG_GRACE_MS = 3_000;
    /** A broker that has just started may not know all topics: how long it is doubted that one is gone. */
    private static final int GONE_GRACE_MS = 5_000;
    /** Why a fetch of one partition is answered without any. */
    private static final String THROTTLED = "the client has a quota, and the broker throttles it";

    private final ScanTask task;
    private final String about;
    private final Cluster cluster;
    private final Backoff backoff = new Backoff(Cluster.BACKOFF_FIRST_MS, Cluster.BACKOFF_MAX_MS);
    private final Records records;
    private final Scratch scratch = new Scratch();
    private final ColumnarBatch batch;
    private final ArrayDeque<BatchHeader> pending = new ArrayDeque<>();
    private byte[] pendingData;
    private ScanTask.Address leader;
    private Link link;
    private long position;
    /** The range, without what was found lost of it: records of [start, end) are handed out. */
    private long start;
    private long end;
    private double recordBytes = RECORD_BYTES_GUESS;
    private long progressMs = Link.nowMs();
    private long shortSinceMs = -1;
    private long goneSinceMs = -1;

    RangeReader(ScanTask task, StructType columns) {
        this.task = task;
        about = "topic '" + task.topic() + "' partition " + task.partition();
        cluster = new Cluster(task.client());
        leader = task.leader();
        start = task.start();
        position = start;
        end = task.end();
        Set<String> names = new HashSet<>(Arrays.asList(columns.fieldNames()));
        boolean headers = names.contains("headers");
        boolean data = headers || names.contains("key") || names.contains("value");
        records = new Records(new Records.Wanted(data, headers));
        ColumnVector[] vectors = Columns.of(columns, records, task.topic(), task.partition());
        batch = new ColumnarBatch(vectors);
    }

    @Override
    public boolean next() {
        // Spark may have let us wait: only from here on is the broker slow.
        progressMs = Link.nowMs();
        while (true) {
            if (!pending.isEmpty()) {
                decode();
                if (records.count > 0) {
                    batch.setNumRows(records.count);
                    return true;
                }
                continue;
            }
            if (position >= end) {
                release();
                return false;
            }
            readMore();
        }
    }

    @Override
    public ColumnarBatch get() {
        return batch;
    }

    @Override
    public void close() {
        release();
    }

    // One reply.

    private void readMore() {
        Link.checkTask();
        FetchReply reply = nextReply();
        if (reply == null) {
            return;
        }
        long before = position;
        try {
            walk(reply);
        } catch (InvalidBatch exc) {
            throw new SourceError(about + " at offset " + position + ": " + exc.getMessage(), exc);
        }
        if (position == before) {
            waitForMore(reply);
        } else {
            fetchAhead();
        }
    }

    /** The reply to the fetch at the position; null: something was put right, try again. */
    private FetchReply nextReply() {
        try {
            if (link == null) {
                link = Links.take(leader, task.client());
                fetch();
            }
            Reply reply = link.receive(task.client().requestTimeoutMs() + FetchReply.WAIT_MS);
            return parse(reply);
        } catch (BufferUnderflowException exc) {
            dropLink();
            throw new SourceError.SourceUnavailable(about + ": a reply that cannot be read", exc);
        } catch (LinkError exc) {
            recover(exc);
            return null;
        }
    }

    private FetchReply parse(Reply reply) throws LinkError {
        FetchReply found = FetchReply.parse(reply, fetchVersion(), about);
        if (found == null) {
            // It reads on when the debt is paid off.
            pause(THROTTLED, null);
            fetchAhead();
            return null;
        }
        if (found.code() == LinkError.OFFSET_OUT_OF_RANGE) {
            skipWhatIsLost();
            return null;
        }
        LinkError.check(found.code(), about);
        return found;
    }

    /** Find the batches that hold records to hand out; moves the position. */
    private void walk(FetchReply reply) throws InvalidBatch {
        ByteBuffer in = ByteBuffer.wrap(reply.data());
        ArrayDeque<FetchReply.Aborted> aborted = new ArrayDeque<>(reply.aborted());
        Set<Long> abortedProducers = new HashSet<>();
        long first = position;
        long size = 0;
        pendingData = reply.data();
        BatchHeader header;
        for (int at = reply.start();
                (header = BatchHeader.read(in, at, reply.end())) != null;
                at = header.end()) {
            if (header.nextOffset() <= position) {
                continue;
            }
            if (header.baseOffset() >= end) {
                position = end;
                break;
            }
            while (!aborted.isEmpty() && aborted.peek().firstOffset() <= header.lastOffset()) {
                abortedProducers.add(aborted.pop().producerId());
            }
            if (!isSkipped(header, abortedProducers)) {
                pending.add(header);
            } else if (header.gapReason() != 0 && header.gapReason() != Loss.GAP_DELETED) {
                Loss.Lost lost =
                        Loss.inLog(task.topic(), task.partition(), start, end, header);
                Loss.report(List.of(lost), task.failOnDataLoss());
            }
            position = header.nextOffset();
            size += header.size();
        }
        if (position > first) {
            recordBytes = Math.max(1.0, (double) size / (position - first));
            progressMs = Link.nowMs();
            shortSinceMs = -1;
            backoff.reset();
        }
    }

    private static boolean isSkipped(BatchHeader header, Set<Long> abortedProducers) {
        if (header.isTransactional() && abortedProducers.contains(header.producerId())) {
            // The marker that ends the aborted transaction is a control batch of the same producer.
            if (header.isControl()) {
                abortedProducers.remove(header.producerId());
            }
            return true;
        }
        return header.isControl() || header.recordsCount() == 0;
    }

    /** The next ColumnarBatch: pending batches, as long as they lie in one buffer. */
    private void decode() {
        boolean isPacked = pending.peek().codec() != Codec.NONE;
        scratch.size = 0;
        records.reset(isPacked ? scratch.data : pendingData);
        ByteBuffer in = ByteBuffer.wrap(pendingData);
        while (!pending.isEmpty()
                && isPacked == (pending.peek().codec() != Codec.NONE)
                && scratch.size < ROWS_BYTES) {
            BatchHeader header = pending.poll();
            int first = header.position() + BatchHeader.SIZE;
            int stop = header.end();
            try {
                header.check(in);
                if (isPacked) {
                    int unpackedFirst = scratch.begin();
                    Codec.decompress(header.codec(), pendingData, first, stop, scratch);
                    records.data = scratch.data;
                    first = unpackedFirst;
                    stop = scratch.size;
                }
                records.add(header, first, stop, start, end);
            } catch (InvalidBatch exc) {
                throw new SourceError(
                        about + ", batch at offset " + header.baseOffset() + ": " + exc.getMessage(), exc);
            }
        }
    }

    // Requests.

    private void fetch() throws LinkError {
        double wanted = (end - position) * recordBytes * 1.125 + FETCH_BYTES_MIN;
        int bytes = (int) Math.min(wanted, task.fetchBytes());
        link.send(FetchReply.request(link, fetchVersion(), task, position, bytes));
    }

    /** By id where the task and the broker know it: of a topic made again nothing is taken. */
    private int fetchVersion() throws LinkError {
        return task.topicId() != null && link.serves(Link.FETCH, FetchReply.BY_ID)
                ? FetchReply.BY_ID
                : link.version(Link.FETCH, 4, 11);
    }

    /** Send the next fetch, unless all is read; what goes wrong is met, and put right, when its reply is wanted. */
    private void fetchAhead() {
        try {
            if (link == null || link.isStale()) {
                dropLink();
            } else if (position < end) {
                fetch();
            }
        } catch (LinkError exc) {
            dropLink();
        }
    }

    // Trouble.

    /** Nothing came: the log may end below the range, for a moment or for good. */
    private void waitForMore(FetchReply reply) {
        String why = "the broker sends nothing";
        if (reply.highWatermark() < end) {
            long now = Link.nowMs();
            shortSinceMs = shortSinceMs < 0 ? now : shortSinceMs;
            if (now - shortSinceMs > SHORT_LOG_GRACE_MS) {
                skipWhatIsLost();
                return;
            }
        } else if (task.readCommitted() && reply.stableEnd() < end) {
            why = "a transaction is open";
        }
        pause(why, null);
        fetchAhead();
    }

    /** Fail, or move on to what is left of the range, and fetch that. */
    private void skipWhatIsLost() {
        Loss.Clipped left =
                Loss.clip(
                        task.topic(),
                        task.partition(),
                        position,
                        end,
                        cluster.bounds(task.topic(), task.partition()));
        Loss.report(left.lost(), task.failOnDataLoss());
        if (left.lost().isEmpty()) {
            pause("out of range, and then not", null);
        }
        start = left.start();
        position = start;
        end = left.end();
        shortSinceMs = -1;
        fetchAhead();
    }

    /** After an error that may pass: pause, and find the leader again. */
    private void recover(LinkError error) {
        if (!error.retryable) {
            throw new SourceError.SourceUnavailable(about + ": " + error.getMessage(), error);
        }
        dropLink();
        pause(error.getMessage(), error);
        Cluster.Leader now;
        try {
            now = cluster.leader(task.topic(), task.partition());
        } catch (LinkError exc) {
            if (!exc.retryable) {
                throw new SourceError.SourceUnavailable("asking for topics: " + exc.getMessage(), exc);
            }
            // The pauses between the tries, and their end, are this task's.
            return;
        }
        if (now != null
                && task.topicId() != null
                && now.topicId() != null
                && !task.topicId().equals(now.topicId())) {
            loseTheRest(Loss.RECREATED);
            return;
        }
        if (now != null && now.address() != null) {
            leader = now.address();
            goneSinceMs = -1;
            return;
        }
        goneSinceMs = goneSinceMs < 0 ? Link.nowMs() : goneSinceMs;
        if (Link.nowMs() - goneSinceMs > GONE_GRACE_MS) {
            loseTheRest(Loss.GONE);
        }
    }

    /** The topic is not there or another one now: no offset of the range means a record. */
    private void loseTheRest(String why) {
        Loss.report(
                List.of(new Loss.Lost(task.topic(), task.partition(), position, end, why)),
                task.failOnDataLoss());
        position = end;
    }

    private void pause(String why, Exception cause) {
        long delayMs = backoff.nextDelayMs();
        if (Link.nowMs() + delayMs - progressMs > task.pollTimeoutMs()) {
            throw new SourceError.SourceUnavailable(
                    about + " at offset " + position + ": no progress within " + task.pollTimeoutMs()
                            + " ms (kafkaConsumer.pollTimeoutMs); last: " + why,
                    cause);
        }
        Backoff.sleep(delayMs);
    }

    private void dropLink() {
        Link dropped = link;
        link = null;
        if (dropped != null) {
            dropped.close();
        }
    }

    private void release() {
        Link released = link;
        link = null;
        if (released != null) {
            Links.giveBack(released, task.client());
        }
    }
}
