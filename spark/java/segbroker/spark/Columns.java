package segbroker.spark;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.CoderResult;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * {@link Records} as the columns that Spark asked for; they are views, made once per task.
 *
 * <p>Only values that Spark takes out are copied, one at a time.
 */
final class Columns {
    private Columns() {}

    static ColumnVector[] of(StructType wanted, Records records, String topic, int partition) {
        StructField[] fields = wanted.fields();
        ColumnVector[] found = new ColumnVector[fields.length];
        for (int n = 0; n < fields.length; n++) {
            found[n] = of(fields[n], records, topic, partition);
        }
        return found;
    }

    private static ColumnVector of(StructField field, Records records, String topic, int partition) {
        DataType type = field.dataType();
        return switch (field.name()) {
            case "key" -> new Binary(type, records, records.keys);
            case "value" -> new Binary(type, records, records.values);
            case "topic" -> new Topic(type, UTF8String.fromString(topic));
            case "partition" -> new Partition(type, partition);
            case "offset" -> new Offsets(type, records);
            case "timestamp" -> new Timestamps(type, records);
            case "timestampType" -> new TimestampTypes(type, records);
            case "headers" -> new Headers((ArrayType) type, records);
            default -> throw new IllegalArgumentException("there is no column " + field.name());
        };
    }

    /** A column of nothing; those below say what they have. */
    private abstract static class View extends ColumnVector {
        View(DataType type) {
            super(type);
        }

        @Override
        public void close() {}

        @Override
        public boolean hasNull() {
            return false;
        }

        @Override
        public int numNulls() {
            return 0;
        }

        @Override
        public boolean isNullAt(int row) {
            return false;
        }

        @Override
        public boolean getBoolean(int row) {
            throw new UnsupportedOperationException();
        }

        @Override
        public byte getByte(int row) {
            throw new UnsupportedOperationException();
        }

        @Override
        public short getShort(int row) {
            throw new UnsupportedOperationException();
        }

        @Override
        public int getInt(int row) {
            throw new UnsupportedOperationException();
        }

        @Override
        public long getLong(int row) {
            throw new UnsupportedOperationException();
        }

        @Override
        public float getFloat(int row) {
            throw new UnsupportedOperationException();
        }

        @Override
        public double getDouble(int row) {
            throw new UnsupportedOperationException();
        }

        @Override
        public ColumnarArray getArray(int row) {
            throw new UnsupportedOperationException();
        }

        @Override
        public ColumnarMap getMap(int row) {
            throw new UnsupportedOperationException();
        }

        @Override
        public Decimal getDecimal(int row, int precision, int scale) {
            throw new UnsupportedOperationException();
        }

        @Override
        public UTF8String getUTF8String(int row) {
            throw new UnsupportedOperationException();
        }

        @Override
        public byte[] getBinary(int row) {
            throw new UnsupportedOperationException();
        }

        @Override
        public ColumnVector getChild(int ordinal) {
            throw new UnsupportedOperationException();
        }
    }

    private static final class Topic extends View {
        private final UTF8String topic;

        Topic(DataType type, UTF8String topic) {
            super(type);
            this.topic = topic;
        }

        @Override
        public UTF8String getUTF8String(int row) {
            return topic;
        }
    }

    private static final class Partition extends View {
        private final int partition;

        Partition(DataType type, int partition) {
            super(type);
            this.partition = partition;
        }

        @Override
        public int getInt(int row) {
            return partition;
        }
    }

    private abstract static class OfRecords extends View {
        final Records records;

        OfRecords(DataType type, Records records) {
            super(type);
            this.records = records;
        }
    }

    private static final class Offsets extends OfRecords {
        Offsets(DataType type, Records records) {
            super(type, records);
        }

        @Override
        public long getLong(int row) {
            return records.offsets[row];
        }
    }

    private static final class Timestamps extends OfRecords {
        Timestamps(DataType type, Records records) {
            super(type, records);
        }

        @Override
        public long getLong(int row) {
            return records.timestampsUs[row];
        }
    }

    private static final class TimestampTypes extends OfRecords {
        TimestampTypes(DataType type, Records records) {
            super(type, records);
        }

        @Override
        public int getInt(int row) {
            return records.timestampTypes[row];
        }
    }

    private abstract static class Nullable extends OfRecords {
        Nullable(DataType type, Records records) {
            super(type, records);
        }

        @Override
        public boolean hasNull() {
            return true;
        }

        @Override
        public int numNulls() {
            int found = 0;
            for (int row = 0; row < records.count; row++) {
                found += isNullAt(row) ? 1 : 0;
            }
            return found;
        }
    }

    /** The keys or the values, of records or of headers. */
    private static final class Binary extends Nullable {
        private final Records.Slices slices;

        Binary(DataType type, Records records, Records.Slices slices) {
            super(type, records);
            this.slices = slices;
        }

        @Override
        public boolean isNullAt(int row) {
            return slices.sizes[row] < 0;
        }

        @Override
        public byte[] getBinary(int row) {
            int start = slices.starts[row];
            int size = slices.sizes[row];
            return size < 0 ? null : Arrays.copyOfRange(records.data, start, start + size);
        }
    }

    /** Null where a record has none, as from Kafka's source. */
    private static final class Headers extends Nullable {
        private final Pairs pairs;

        Headers(ArrayType type, Records records) {
            super(type, records);
            pairs = new Pairs((StructType) type.elementType(), records);
        }

        @Override
        public boolean isNullAt(int row) {
            return records.headerStarts[row] == records.headerStarts[row + 1];
        }

        @Override
        public ColumnarArray getArray(int row) {
            int start = records.headerStarts[row];
            return new ColumnarArray(pairs, start, records.headerStarts[row + 1] - start);
        }

        @Override
        public ColumnVector getChild(int ordinal) {
            return pairs;
        }
    }

    /** The headers of all records one behind the other, with those of their fields that are asked for. */
    private static final class Pairs extends OfRecords {
        private final ColumnVector[] fields;

        Pairs(StructType type, Records records) {
            super(type, records);
            fields =
                    Arrays.stream(type.fields())
                            .map(field -> of(field, records))
                            .toArray(ColumnVector[]::new);
        }

        private static ColumnVector of(StructField field, Records records) {
            return switch (field.name()) {
                case "key" -> new HeaderKeys(field.dataType(), records);
                case "value" -> new Binary(field.dataType(), records, records.headerValues);
                default -> throw new IllegalArgumentException("no field of headers: " + field.name());
            };
        }

        @Override
        public ColumnVector getChild(int ordinal) {
            return fields[ordinal];
        }
    }

    private static final class HeaderKeys extends OfRecords {
        HeaderKeys(DataType type, Records records) {
            super(type, records);
        }

        @Override
        public UTF8String getUTF8String(int row) {
            Records.Slices keys = records.headerKeys;
            return text(records.data, keys.starts[row], keys.sizes[row]);
        }
    }

    /** A header's name; what is not UTF-8 comes with backslash escapes, as in the Python reader. */
    private static UTF8String text(byte[] data, int start, int size) {
        CharsetDecoder decoder = StandardCharsets.UTF_8.newDecoder();
        ByteBuffer in = ByteBuffer.wrap(data, start, size);
        CharBuffer out = CharBuffer.allocate(4 * size + 1);
        CoderResult result;
        while ((result = decoder.decode(in, out, true)).isMalformed()) {
            for (int n = 0; n < result.length(); n++) {
                out.put(String.format("\\x%02x", in.get()));
            }
        }
        return UTF8String.fromString(out.flip().toString());
    }
}
