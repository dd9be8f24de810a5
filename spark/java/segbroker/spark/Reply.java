package segbroker.spark;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.UUID;

/**
 * A reply as it lies in the link's buffer, read from front to back.
 *
 * <p>Invariant: nothing is read behind its end (BufferUnderflowException, which the link turns into
 * an error of the peer), and no count is believed beyond the bytes that are there.
 */
final class Reply {
    /** The link's receive buffer; valid until the next reply is received. */
    final byte[] data;

    private final ByteBuffer in;
    private boolean isFlexible;

    Reply(byte[] data, int start, int end) {
        this.data = data;
        in = ByteBuffer.wrap(data, start, end - start);
    }

    /** How what follows is written: with compact counts and sizes, and with tagged fields, or not. */
    Reply flexible(boolean isFlexible) {
        this.isFlexible = isFlexible;
        return this;
    }

    int int8() {
        return in.get();
    }

    int int16() {
        return in.getShort();
    }

    int int32() {
        return in.getInt();
    }

    long int64() {
        return in.getLong();
    }

    /** The number of elements, or of bytes, that follow; null counts as none. */
    int count() {
        int count = isFlexible ? varint() - 1 : in.getInt();
        if (count > in.remaining()) {
            throw new BufferUnderflowException();
        }
        return Math.max(0, count);
    }

    /** Pass over tagged fields, where there can be any. */
    void skipTags() {
        for (int count = isFlexible ? varint() : 0; count > 0; count--) {
            varint();
            skip(varint());
        }
    }

    private int varint() {
        int value = 0;
        for (int shift = 0; shift < 35; shift += 7) {
            byte part = in.get();
            value |= (part & 0x7F) << shift;
            if (part >= 0) {
                return value;
            }
        }
        throw new BufferUnderflowException();
    }

    /** A string, or null. */
    String text() {
        int size = isFlexible ? varint() - 1 : in.getShort();
        return size < 0 ? null : new String(taken(size), StandardCharsets.UTF_8);
    }

    UUID uuid() {
        return new UUID(in.getLong(), in.getLong());
    }

    byte[] bytes() {
        return taken(Math.max(0, in.getInt()));
    }

    /** Where in `data` the next `size` bytes are; they are passed over. */
    int skip(int size) {
        int position = in.position();
        if (size < 0 || size > in.remaining()) {
            throw new BufferUnderflowException();
        }
        in.position(position + size);
        return position;
    }

    ByteBuffer rest() {
        return in;
    }

    private byte[] taken(int size) {
        if (size > in.remaining()) {
            throw new BufferUnderflowException();
        }
        byte[] found = new byte[size];
        in.get(found);
        return found;
    }
}
