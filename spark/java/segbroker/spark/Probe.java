package segbroker.spark;

import java.util.Base64;
import java.util.Iterator;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * One task read without a Spark job, its rows as lines: for tests, and for looking at a task by hand.
 *
 * <p>A line has partition, offset, timestamp (us), timestampType, key and value (base64, - for null),
 * and then a name and a value for each header, or - for null.
 */
public final class Probe implements AutoCloseable {
    private static final String COLUMNS =
            "key binary, value binary, topic string, partition int, offset long,"
                    + " timestamp timestamp, timestampType int,"
                    + " headers array<struct<key: string, value: binary>>";

    private final PartitionReader<ColumnarBatch> reader;

    /** Of a task, which is given as its JSON. */
    public Probe(String scan) {
        RangeReaderFactory factory = new RangeReaderFactory(StructType.fromDDL(COLUMNS));
        reader = factory.createColumnarReader(new RangePartition(scan));
    }

    /** The rows of the next batch that Spark would be handed, at least one; null at the end. */
    public String next() throws Exception {
        if (!reader.next()) {
            return null;
        }
        StringBuilder lines = new StringBuilder();
        Iterator<InternalRow> rows = reader.get().rowIterator();
        while (rows.hasNext()) {
            line(rows.next(), lines);
        }
        return lines.toString();
    }

    @Override
    public void close() throws Exception {
        reader.close();
    }

    private static void line(InternalRow row, StringBuilder out) {
        out.append(row.getInt(3)).append(' ').append(row.getLong(4)).append(' ');
        out.append(row.getLong(5)).append(' ').append(row.getInt(6)).append(' ');
        out.append(text(row.isNullAt(0) ? null : row.getBinary(0))).append(' ');
        out.append(text(row.isNullAt(1) ? null : row.getBinary(1)));
        if (row.isNullAt(7)) {
            out.append(" -\n");
            return;
        }
        ArrayData headers = row.getArray(7);
        for (int n = 0; n < headers.numElements(); n++) {
            InternalRow header = headers.getStruct(n, 2);
            out.append(' ').append(text(header.getUTF8String(0).getBytes()));
            out.append(' ').append(text(header.isNullAt(1) ? null : header.getBinary(1)));
        }
        out.append('\n');
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "-" : "=" + Base64.getEncoder().encodeToString(bytes);
    }
}
