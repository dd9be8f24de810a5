package segbroker.spark;

import com.github.luben.zstd.ZstdInputStream;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.zip.GZIPInputStream;
import org.xerial.snappy.Snappy;

/**
 * What is inside a compressed batch: gzip by the JDK, snappy and zstd by the jars that Spark has, lz4
 * by {@link Lz4}.
 *
 * <p>The output grows while the data really fills it, up to SIZE_MAX; a declared size is not believed
 * beyond what the codec could hold. Snappy is one raw block, or the blocks of xerial's framing.
 */
final class Codec {
    static final int NONE = 0;
    private static final int GZIP = 1;
    private static final int SNAPPY = 2;
    private static final int LZ4 = 3;
    private static final int ZSTD = 4;
    static final int SIZE_MAX = 100 << 20;
    private static final byte[] XERIAL = {(byte) 0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0};
    private static final int XERIAL_HEADER_SIZE = 16;
    // No snappy element of n bytes yields more than 64 bytes per 3.
    private static final int SNAPPY_RATIO_MAX = 22;

    private Codec() {}

    /** Append what in[start, end) holds to `out`. */
    static void decompress(int codec, byte[] in, int start, int end, Scratch out) throws InvalidBatch {
        try {
            switch (codec) {
                case GZIP -> copy(new GZIPInputStream(stream(in, start, end)), out);
                case SNAPPY -> snappy(in, start, end, out);
                case LZ4 -> Lz4.decompress(in, start, end, out);
                case ZSTD -> copy(new ZstdInputStream(stream(in, start, end)), out);
                default -> throw new InvalidBatch("codec " + codec);
            }
        } catch (IOException | RuntimeException exc) {
            throw new InvalidBatch("compressed records that cannot be read: " + exc.getMessage(), exc);
        }
    }

    private static InputStream stream(byte[] in, int start, int end) {
        return new ByteArrayInputStream(in, start, end - start);
    }

    private static void copy(InputStream from, Scratch out) throws IOException, InvalidBatch {
        try (from) {
            int count;
            while ((count = from.read(out.data, out.size, out.data.length - out.size)) >= 0) {
                out.size += count;
                if (out.size == out.data.length) {
                    out.room(1);
                }
            }
        }
    }

    private static void snappy(byte[] in, int start, int end, Scratch out)
            throws IOException, InvalidBatch {
        if (end - start < XERIAL.length
                || !java.util.Arrays.equals(in, start, start + XERIAL.length, XERIAL, 0, XERIAL.length)) {
            snappyBlock(in, start, end - start, out);
            return;
        }
        ByteBuffer lengths = ByteBuffer.wrap(in);
        for (int at = start + XERIAL_HEADER_SIZE; at < end; ) {
            int size = lengths.getInt(at);
            at += 4;
            if (size <= 0 || size > end - at) {
                throw new InvalidBatch("snappy: xerial block of " + size + " bytes");
            }
            snappyBlock(in, at, size, out);
            at += size;
        }
    }

    private static void snappyBlock(byte[] in, int start, int size, Scratch out)
            throws IOException, InvalidBatch {
        int length = Snappy.uncompressedLength(in, start, size);
        if (length < 0 || length > (long) SNAPPY_RATIO_MAX * size) {
            throw new InvalidBatch("snappy: " + size + " bytes cannot hold " + length);
        }
        out.room(length);
        out.size += Snappy.uncompress(in, start, size, out.data, out.size);
    }
}
