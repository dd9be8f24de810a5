package segbroker.spark;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/**
 * A fetch of one partition, and what the reply says of it.
 *
 * <p>By name in versions 4 to 11; by id in version 13, whose arrays are compact. Each fetch stands for
 * itself: no fetch sessions.
 */
record FetchReply(
        int code,
        byte[] data,
        int start,
        int end,
        long highWatermark,
        long stableEnd,
        List<FetchReply.Aborted> aborted) {

    /** The first version by id that is spoken here. */
    static final int BY_ID = 13;

    static final int WAIT_MS = 500;

    record Aborted(long firstOffset, long producerId) {}

    /** A fetch of at most `bytes` from the position on. */
    static RequestWriter request(Link link, int version, ScanTask task, long position, int bytes) {
        RequestWriter request = link.request(Link.FETCH, version);
        if (version >= BY_ID) {
            request.noTags();
        }
        request.int32(-1).int32(WAIT_MS).int32(1).int32(task.fetchBytes());
        request.int8(task.readCommitted() ? 1 : 0);
        if (version >= 7) {
            request.int32(0).int32(-1);
        }
        if (version >= BY_ID) {
            request.compactCount(1).uuid(task.topicId()).compactCount(1);
            request.int32(task.partition()).int32(-1).int64(position).int32(-1).int64(-1).int32(bytes);
            return request.noTags().noTags().compactCount(0).compactText("").noTags();
        }
        request.int32(1).text(task.topic()).int32(1).int32(task.partition());
        if (version >= 9) {
            request.int32(-1);
        }
        request.int64(position);
        if (version >= 5) {
            request.int64(-1);
        }
        request.int32(bytes);
        if (version >= 7) {
            request.int32(0);
        }
        return version >= 11 ? request.text("") : request;
    }

    /**
     * Null where the reply has no partition: so Apache Kafka answers a client that is over its quota.
     * Raises LinkError for what the broker says of the whole request.
     */
    static FetchReply parse(Reply reply, int version, String about) throws LinkError {
        boolean isById = version >= BY_ID;
        reply.flexible(isById).skipTags();
        reply.int32();
        if (version >= 7) {
            LinkError.check(reply.int16(), about);
            reply.int32();
        }
        if (reply.count() == 0) {
            return null;
        }
        if (isById) {
            reply.uuid();
        } else {
            reply.text();
        }
        reply.count();
        reply.int32();
        int code = reply.int16();
        long highWatermark = reply.int64();
        long stableEnd = reply.int64();
        if (version >= 5) {
            reply.int64();
        }
        List<Aborted> aborted = new ArrayList<>();
        for (int left = reply.count(); left > 0; left--) {
            long producerId = reply.int64();
            aborted.add(new Aborted(reply.int64(), producerId));
            reply.skipTags();
        }
        aborted.sort(Comparator.comparingLong(Aborted::firstOffset));
        if (version >= 11) {
            reply.int32();
        }
        int size = reply.count();
        int start = reply.skip(size);
        return new FetchReply(code, reply.data, start, start + size, highWatermark, stableEnd, aborted);
    }
}
