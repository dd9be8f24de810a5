package segbroker.spark;

import java.util.Arrays;

/**
 * Decoded records as arrays: where each key and value lies in `data`, offsets and timestamps.
 *
 * <pre>
 * record: length varint | attributes i8 | timestamp_delta varlong | offset_delta varint
 *         | key_length varint | key | value_length varint | value
 *         | header_count varint | headers: key_length, key, value_length, value ...
 * </pre>
 *
 * <p>Nothing is copied: `data` is the reply's buffer, or the scratch in which compressed batches were
 * unpacked, and stays as it is until the next reset.
 *
 * <p>Invariant: whatever the bytes are, a record is taken whole and within its batch, or InvalidBatch
 * is raised.
 */
final class Records {
    /** Which of the parts of a record the query asks for. */
    record Wanted(boolean data, boolean headers) {}

    /** Where in `data` keys, or values, lie; a size of -1 stands for null. */
    static final class Slices {
        int[] starts;
        int[] sizes;

        Slices(int room) {
            starts = new int[room];
            sizes = new int[room];
        }

        void room(int room) {
            starts = Arrays.copyOf(starts, room);
            sizes = Arrays.copyOf(sizes, room);
        }
    }

    private static final int RECORD_SIZE_MIN = 7;
    private static final long MS_MAX = Long.MAX_VALUE / 1000 - 1;

    private final Wanted wanted;
    byte[] data;
    int count;
    long[] offsets = new long[1024];
    long[] timestampsUs = new long[1024];
    int[] timestampTypes = new int[1024];
    final Slices keys = new Slices(1024);
    final Slices values = new Slices(1024);
    /** Of each record the first of its headers; the end is that of the next. */
    int[] headerStarts = new int[1025];
    int headersCount;
    final Slices headerKeys = new Slices(64);
    final Slices headerValues = new Slices(64);

    private int at;

    Records(Wanted wanted) {
        this.wanted = wanted;
    }

    void reset(byte[] data) {
        this.data = data;
        count = 0;
        headersCount = 0;
    }

    /** Add those records of the batch whose offsets are in [from, to); they lie in data[start, end). */
    void add(BatchHeader batch, int start, int end, long from, long to) throws InvalidBatch {
        if (batch.recordsCount() > (end - start) / RECORD_SIZE_MIN) {
            throw malformed(batch);
        }
        room(batch.recordsCount());
        at = start;
        long baseUs = micros(batch.maxTimestamp());
        boolean isAppendTime = batch.isLogAppendTime();
        int previous = -1;
        try {
            for (int left = batch.recordsCount(); left > 0; left--) {
                int size = varint();
                int recordEnd = at + size;
                if (size < 0 || size > end - at) {
                    throw malformed(batch);
                }
                at++;
                long timestampMs = Math.addExact(batch.baseTimestamp(), varlong());
                int delta = varint();
                if (delta <= previous || delta > batch.lastOffsetDelta()) {
                    throw malformed(batch);
                }
                previous = delta;
                long offset = batch.baseOffset() + delta;
                if (offset < from || offset >= to) {
                    at = recordEnd;
                    continue;
                }
                offsets[count] = offset;
                timestampsUs[count] = isAppendTime ? baseUs : micros(timestampMs);
                timestampTypes[count] = isAppendTime ? 1 : 0;
                headerStarts[count] = headersCount;
                if (wanted.data) {
                    take(keys, count, -1, recordEnd, batch);
                    take(values, count, -1, recordEnd, batch);
                    if (wanted.headers) {
                        headers(recordEnd, batch);
                    }
                }
                count++;
                headerStarts[count] = headersCount;
                at = recordEnd;
            }
        } catch (ArrayIndexOutOfBoundsException | ArithmeticException exc) {
            throw malformed(batch);
        }
        if (at != end) {
            throw malformed(batch);
        }
    }

    private void headers(int recordEnd, BatchHeader batch) throws InvalidBatch {
        int left = varint();
        if (left < 0 || left > recordEnd - at) {
            throw malformed(batch);
        }
        for (; left > 0; left--) {
            if (headersCount == headerKeys.starts.length) {
                headerKeys.room(2 * headersCount);
                headerValues.room(2 * headersCount);
            }
            take(headerKeys, headersCount, 0, recordEnd, batch);
            take(headerValues, headersCount, -1, recordEnd, batch);
            headersCount++;
        }
        if (at != recordEnd) {
            throw malformed(batch);
        }
    }

    /** The next key or value of the record; `least`: its size, -1 where it may be null. */
    private void take(Slices to, int place, int least, int recordEnd, BatchHeader batch)
            throws InvalidBatch {
        int size = varint();
        if (size < least || size > recordEnd - at) {
            throw malformed(batch);
        }
        to.starts[place] = at;
        to.sizes[place] = size;
        at += Math.max(0, size);
    }

    private static InvalidBatch malformed(BatchHeader batch) {
        return new InvalidBatch("a record of " + batch.recordsCount() + " is malformed");
    }

    private int varint() {
        int first = data[at++];
        if (first >= 0) {
            return first >>> 1 ^ -(first & 1);
        }
        int value = first & 0x7F;
        for (int shift = 7; shift < 35; shift += 7) {
            int part = data[at++];
            value |= (part & 0x7F) << shift;
            if (part >= 0 && (shift < 28 || part < 1 << 4)) {
                return value >>> 1 ^ -(value & 1);
            }
        }
        throw new ArrayIndexOutOfBoundsException("a varint of more than 32 bits");
    }

    private long varlong() {
        int first = data[at++];
        if (first >= 0) {
            return first >>> 1 ^ -(first & 1);
        }
        long value = first & 0x7F;
        for (int shift = 7; shift < 70; shift += 7) {
            int part = data[at++];
            value |= (long) (part & 0x7F) << shift;
            if (part >= 0 && (shift < 63 || part < 1 << 1)) {
                return value >>> 1 ^ -(value & 1);
            }
        }
        throw new ArrayIndexOutOfBoundsException("a varint of more than 64 bits");
    }

    /** A producer may send any 64 bits as a time: the nearest one that can be shown. */
    private static long micros(long ms) {
        return 1000 * Math.max(-MS_MAX, Math.min(MS_MAX, ms));
    }

    private void room(int more) {
        if (count + more <= offsets.length) {
            return;
        }
        int room = Math.max(count + more, 2 * offsets.length);
        offsets = Arrays.copyOf(offsets, room);
        timestampsUs = Arrays.copyOf(timestampsUs, room);
        timestampTypes = Arrays.copyOf(timestampTypes, room);
        keys.room(room);
        values.room(room);
        headerStarts = Arrays.copyOf(headerStarts, room + 1);
    }
}
