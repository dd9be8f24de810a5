package segbroker.spark;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.UUID;

/** The bytes of one request: size, header v1 (noTags() behind it makes v2), body; big-endian. */
final class RequestWriter {
    private ByteBuffer out = ByteBuffer.allocate(256);

    RequestWriter(int apiKey, int version, int correlationId, String clientId) {
        out.putInt(0);
        int16(apiKey).int16(version).int32(correlationId).text(clientId);
    }

    RequestWriter int8(int value) {
        room(1).put((byte) value);
        return this;
    }

    RequestWriter int16(int value) {
        room(2).putShort((short) value);
        return this;
    }

    RequestWriter int32(int value) {
        room(4).putInt(value);
        return this;
    }

    RequestWriter int64(long value) {
        room(8).putLong(value);
        return this;
    }

    RequestWriter text(String value) {
        byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
        return int16(bytes.length).raw(bytes);
    }

    RequestWriter compactText(String value) {
        byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
        int length = bytes.length + 1;
        for (; length > 0x7F; length >>>= 7) {
            int8(length & 0x7F | 0x80);
        }
        return int8(length).raw(bytes);
    }

    /** A UUID; null is all zeros. */
    RequestWriter uuid(UUID value) {
        return int64(value == null ? 0 : value.getMostSignificantBits())
                .int64(value == null ? 0 : value.getLeastSignificantBits());
    }

    /** The length of a compact array of at most 126 elements. */
    RequestWriter compactCount(int count) {
        return int8(count + 1);
    }

    /** No tagged fields. */
    RequestWriter noTags() {
        return int8(0);
    }

    RequestWriter bytes(byte[] value) {
        return int32(value.length).raw(value);
    }

    RequestWriter raw(byte[] value) {
        room(value.length).put(value);
        return this;
    }

    /** The whole frame. */
    byte[] frame() {
        out.putInt(0, out.position() - 4);
        byte[] frame = new byte[out.position()];
        out.get(0, frame);
        return frame;
    }

    private ByteBuffer room(int size) {
        if (out.remaining() < size) {
            ByteBuffer larger = ByteBuffer.allocate(2 * out.capacity() + size);
            larger.put(out.flip());
            out = larger;
        }
        return out;
    }
}
