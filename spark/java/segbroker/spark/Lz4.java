package segbroker.spark;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * LZ4 frames, whose blocks may go back into earlier ones: the decoder in Spark's lz4-java refuses
 * those, and some producers write them. Checksums inside the frame are passed over: the batch has its
 * own.
 *
 * <pre>
 * magic 04 22 4d 18 | flags, block size | [content size 8] | [dictionary id 4] | header checksum
 * blocks: size u32 (high bit: not compressed), bytes, [checksum 4] ... 0 | [content checksum 4]
 * </pre>
 */
final class Lz4 {
    private static final int MAGIC = 0x184D2204;
    private static final int SKIPPABLE = 0x184D2A50;

    private Lz4() {}

    static void decompress(byte[] in, int start, int end, Scratch out) throws InvalidBatch {
        ByteBuffer frame = ByteBuffer.wrap(in, 0, end).order(ByteOrder.LITTLE_ENDIAN).position(start);
        while (frame.hasRemaining()) {
            int magic = frame.getInt();
            if ((magic & ~0xF) == SKIPPABLE) {
                skip(frame, frame.getInt());
            } else if (magic == MAGIC) {
                frame(frame, out);
            } else {
                throw new InvalidBatch("lz4: no frame");
            }
        }
    }

    private static void frame(ByteBuffer in, Scratch out) throws InvalidBatch {
        int flags = in.get();
        if (flags >> 6 != 1 || (flags & 0x01) != 0) {
            throw new InvalidBatch("lz4: another version of frames, or a dictionary");
        }
        skip(in, 1 + ((flags & 0x08) != 0 ? 8 : 0) + 1);
        boolean isLinked = (flags & 0x20) == 0;
        int first = out.size;
        int size;
        while ((size = in.getInt()) != 0) {
            int length = size & Integer.MAX_VALUE;
            int start = in.position();
            skip(in, length);
            if (size < 0) {
                out.room(length);
                System.arraycopy(in.array(), start, out.data, out.size, length);
                out.size += length;
            } else {
                block(in.array(), start, start + length, out, isLinked ? first : out.size);
            }
            if ((flags & 0x10) != 0) {
                skip(in, 4);
            }
        }
        if ((flags & 0x04) != 0) {
            skip(in, 4);
        }
    }

    /** One block; `floor`: how far back it may go. */
    private static void block(byte[] in, int at, int end, Scratch out, int floor) throws InvalidBatch {
        while (true) {
            int token = in[at++] & 0xFF;
            int literals = token >> 4;
            if (literals == 15) {
                int more;
                do {
                    more = in[at++] & 0xFF;
                    literals += more;
                } while (more == 255 && literals < Codec.SIZE_MAX);
            }
            if (literals > end - at) {
                throw new InvalidBatch("lz4: a block that ends too early");
            }
            out.room(literals);
            System.arraycopy(in, at, out.data, out.size, literals);
            at += literals;
            out.size += literals;
            if (at == end) {
                return;
            }
            if (end - at < 2) {
                throw new InvalidBatch("lz4: a block that ends too early");
            }
            int distance = in[at] & 0xFF | (in[at + 1] & 0xFF) << 8;
            at += 2;
            int size = token & 15;
            if (size == 15) {
                int more;
                do {
                    if (at >= end) {
                        throw new InvalidBatch("lz4: a block that ends too early");
                    }
                    more = in[at++] & 0xFF;
                    size += more;
                } while (more == 255 && size < Codec.SIZE_MAX);
            }
            size += 4;
            int from = out.size - distance;
            if (distance == 0 || from < floor) {
                throw new InvalidBatch("lz4: a match before the beginning");
            }
            out.room(size);
            copy(out.data, from, out.size, size);
            out.size += size;
        }
    }

    /** Byte by byte in effect: the two may overlap, then the pattern repeats. */
    private static void copy(byte[] data, int from, int to, int size) {
        int done = Math.min(size, to - from);
        System.arraycopy(data, from, data, to, done);
        while (done < size) {
            int part = Math.min(size - done, done);
            System.arraycopy(data, to, data, to + done, part);
            done += part;
        }
    }

    private static void skip(ByteBuffer in, int size) throws InvalidBatch {
        if (size < 0 || size > in.remaining()) {
            throw new InvalidBatch("lz4: a frame that ends too early");
        }
        in.position(in.position() + size);
    }
}
