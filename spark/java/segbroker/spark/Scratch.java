package segbroker.spark;

import java.util.Arrays;

/** Bytes that grow: where compressed batches are unpacked, one behind the other. */
final class Scratch {
    private static final int SIZE_FIRST = 64 << 10;

    byte[] data = new byte[SIZE_FIRST];
    int size;

    /** See to it that so many more bytes have room. */
    void room(int more) throws InvalidBatch {
        long wanted = (long) size + more;
        if (wanted > Codec.SIZE_MAX) {
            throw new InvalidBatch("more than " + Codec.SIZE_MAX + " bytes of records");
        }
        if (wanted > data.length) {
            data = Arrays.copyOf(data, (int) Math.min(Codec.SIZE_MAX, Math.max(wanted, 2L * data.length)));
        }
    }
}
