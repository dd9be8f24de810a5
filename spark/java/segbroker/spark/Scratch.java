package segbroker.spark;

import java.util.Arrays;

/** Bytes that grow: where compressed batches are unpacked, one behind the other, each bounded. */
final class Scratch {
    private static final int SIZE_FIRST = 64 << 10;

    byte[] data = new byte[SIZE_FIRST];
    int size;
    private int batchStart;

    /** What is unpacked from here on is one batch; where it begins. */
    int begin() {
        batchStart = size;
        return size;
    }

    /** See to it that so many more bytes of the batch have room. */
    void room(int more) throws InvalidBatch {
        long wanted = (long) size + more;
        if (wanted - batchStart > Codec.SIZE_MAX) {
            throw new InvalidBatch("more than " + Codec.SIZE_MAX + " bytes of records");
        }
        if (wanted > data.length) {
            long most = (long) batchStart + Codec.SIZE_MAX;
            data = Arrays.copyOf(data, (int) Math.min(most, Math.max(wanted, 2L * data.length)));
        }
    }
}
