package segbroker.spark;

import java.io.ByteArrayOutputStream;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The small part of msgpack that one question needs: why a log starts where it does (FLOORS).
 *
 * <p>Read are nil, booleans, integers, strings, bytes, arrays and maps; anything else is refused. No
 * count is believed beyond the bytes that are there, nor a depth beyond DEPTH_MAX.
 */
final class Msgpack {
    private static final int DEPTH_MAX = 16;

    private Msgpack() {}

    /** {"partitions": [{"topic": topic, "partition": partition}]} */
    static byte[] askFloors(String topic, int partition) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        out.write(0x81);
        text(out, "partitions");
        out.write(0x91);
        out.write(0x82);
        text(out, "topic");
        text(out, topic);
        text(out, "partition");
        out.write(0xd2);
        out.writeBytes(ByteBuffer.allocate(4).putInt(partition).array());
        return out.toByteArray();
    }

    private static void text(ByteArrayOutputStream out, String value) {
        byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
        out.write(0xda);
        out.write(bytes.length >> 8);
        out.write(bytes.length);
        out.writeBytes(bytes);
    }

    /** A Map, List, String, byte[], Long, Boolean or null. BufferUnderflowException for anything else. */
    static Object read(ByteBuffer in) {
        return read(in, 0);
    }

    private static Object read(ByteBuffer in, int depth) {
        int kind = in.get() & 0xFF;
        if (depth > DEPTH_MAX) {
            throw new BufferUnderflowException();
        }
        if (kind < 0x80 || kind >= 0xe0) {
            return (long) (byte) kind;
        }
        if (kind < 0x90) {
            return map(in, kind & 0x0F, depth);
        }
        if (kind < 0xa0) {
            return list(in, kind & 0x0F, depth);
        }
        if (kind < 0xc0) {
            return text(in, kind & 0x1F);
        }
        return switch (kind) {
            case 0xc0 -> null;
            case 0xc2 -> false;
            case 0xc3 -> true;
            case 0xc4 -> bytes(in, in.get() & 0xFF);
            case 0xc5 -> bytes(in, in.getShort() & 0xFFFF);
            case 0xc6 -> bytes(in, in.getInt());
            case 0xcc -> (long) (in.get() & 0xFF);
            case 0xcd -> (long) (in.getShort() & 0xFFFF);
            case 0xce -> in.getInt() & 0xFFFFFFFFL;
            case 0xcf, 0xd3 -> in.getLong();
            case 0xd0 -> (long) in.get();
            case 0xd1 -> (long) in.getShort();
            case 0xd2 -> (long) in.getInt();
            case 0xd9 -> text(in, in.get() & 0xFF);
            case 0xda -> text(in, in.getShort() & 0xFFFF);
            case 0xdb -> text(in, in.getInt());
            case 0xdc -> list(in, in.getShort() & 0xFFFF, depth);
            case 0xdd -> list(in, in.getInt(), depth);
            case 0xde -> map(in, in.getShort() & 0xFFFF, depth);
            case 0xdf -> map(in, in.getInt(), depth);
            default -> throw new BufferUnderflowException();
        };
    }

    private static String text(ByteBuffer in, int size) {
        return new String(bytes(in, size), StandardCharsets.UTF_8);
    }

    private static byte[] bytes(ByteBuffer in, int size) {
        if (size < 0 || size > in.remaining()) {
            throw new BufferUnderflowException();
        }
        byte[] bytes = new byte[size];
        in.get(bytes);
        return bytes;
    }

    private static List<Object> list(ByteBuffer in, int count, int depth) {
        List<Object> found = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            found.add(read(in, depth + 1));
        }
        return found;
    }

    private static Map<Object, Object> map(ByteBuffer in, int count, int depth) {
        Map<Object, Object> found = new LinkedHashMap<>();
        for (int n = 0; n < count; n++) {
            Object key = read(in, depth + 1);
            found.put(key, read(in, depth + 1));
        }
        return found;
    }
}
