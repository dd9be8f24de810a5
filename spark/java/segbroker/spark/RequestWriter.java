package segbroker.spark;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** The bytes of one request: size, header v1 (with v2's empty tags where asked), body; big-endian. */
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

    /** A compact string of at most 126 bytes. */
    RequestWriter compactText(String value) {
        byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
        return int8(bytes.length + 1).raw(bytes);
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
