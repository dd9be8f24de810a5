package segbroker.spark;

import java.nio.ByteBuffer;
import java.util.zip.CRC32C;

/**
 * The 61 bytes before the records of a batch (v2), where they lie in a reply.
 *
 * <pre>
 *  0 base_offset i64 | 8 batch_length i32 | 12 leader_epoch i32 | 16 magic i8 | 17 crc u32
 * 21 attributes i16 | 23 last_offset_delta i32 | 27 base_timestamp i64 | 35 max_timestamp i64
 * 43 producer_id i64 | 51 producer_epoch i16 | 53 base_sequence i32 | 57 records_count i32
 * </pre>
 */
record BatchHeader(
        int position,
        int size,
        long baseOffset,
        int attributes,
        int lastOffsetDelta,
        long baseTimestamp,
        long maxTimestamp,
        long producerId,
        int recordsCount) {
    static final int SIZE = 61;
    static final int LENGTH_END = 12;
    private static final int MAGIC = 2;

    /** The header at `position`; null where no whole batch is left, as fetches may end. */
    static BatchHeader read(ByteBuffer in, int position, int end) throws InvalidBatch {
        if (end - position < SIZE) {
            return null;
        }
        long size = LENGTH_END + (long) in.getInt(position + 8);
        if (size < SIZE) {
            throw new InvalidBatch("batch of " + size + " bytes, a batch header has " + SIZE);
        }
        if (size > end - position) {
            return null;
        }
        return new BatchHeader(
                position,
                (int) size,
                in.getLong(position),
                in.getShort(position + 21),
                in.getInt(position + 23),
                in.getLong(position + 27),
                in.getLong(position + 35),
                in.getLong(position + 43),
                in.getInt(position + 57));
    }

    /** Magic, checksum and counts of the batch that lies here. */
    void check(ByteBuffer in) throws InvalidBatch {
        int magic = in.get(position + 16);
        if (magic != MAGIC) {
            throw new InvalidBatch("magic " + magic + ", expected " + MAGIC);
        }
        CRC32C crc = new CRC32C();
        crc.update(in.array(), position + 21, size - 21);
        int expected = in.getInt(position + 17);
        if ((int) crc.getValue() != expected) {
            throw new InvalidBatch(
                    String.format(
                            "CRC-32C %#010x in the header, %#010x over the bytes",
                            expected, (int) crc.getValue()));
        }
        if (recordsCount < 0 || lastOffsetDelta < 0 || recordsCount - 1 > lastOffsetDelta) {
            throw new InvalidBatch(
                    recordsCount + " records, last offset delta " + lastOffsetDelta);
        }
    }

    int end() {
        return position + size;
    }

    long lastOffset() {
        return baseOffset + lastOffsetDelta;
    }

    long nextOffset() {
        return lastOffset() + 1;
    }

    int codec() {
        return attributes & 7;
    }

    boolean isLogAppendTime() {
        return (attributes & 0x08) != 0;
    }

    boolean isTransactional() {
        return (attributes & 0x10) != 0;
    }

    boolean isControl() {
        return (attributes & 0x20) != 0;
    }

    /** Why the offsets of a gap batch are missing (Loss has the words); 0 for any other batch. */
    int gapReason() {
        int reason = attributes >> 8 & 0xFF;
        return isControl() && recordsCount == 0 && reason <= Loss.GAP_DELETED ? reason : 0;
    }
}
