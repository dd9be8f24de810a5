package segbroker.spark;

import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The table whose scans are planned by the Python source and read by {@link RangeReader}. */
final class ScannedTable implements Table, SupportsRead {
    private final Table python;
    private final StructType schema;

    ScannedTable(Table python, StructType schema) {
        this.python = python;
        this.schema = schema;
    }

    @Override
    public String name() {
        return SegbrokerSource.NAME + "[jvm]";
    }

    @Override
    @SuppressWarnings("deprecation") // its successor makes columns of it, in every version alike
    public StructType schema() {
        return schema;
    }

    @Override
    public Set<TableCapability> capabilities() {
        return Set.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        SupportsRead readable = (SupportsRead) python;
        return new Builder(readable.newScanBuilder(SegbrokerSource.asking(options)), schema);
    }

    /** Takes note of the columns that the query wants: others are not made. */
    private static final class Builder implements ScanBuilder, SupportsPushDownRequiredColumns {
        private final ScanBuilder python;
        private StructType columns;

        Builder(ScanBuilder python, StructType columns) {
            this.python = python;
            this.columns = columns;
        }

        @Override
        public void pruneColumns(StructType required) {
            columns = required;
        }

        @Override
        public Scan build() {
            return new PlannedScan(python.build(), columns);
        }
    }

    private record PlannedScan(Scan python, StructType columns) implements Scan {
        @Override
        public StructType readSchema() {
            return columns;
        }

        @Override
        public String description() {
            return SegbrokerSource.NAME + ", read in the JVM " + columns.catalogString();
        }

        @Override
        public ColumnarSupportMode columnarSupportMode() {
            return ColumnarSupportMode.SUPPORTED;
        }

        @Override
        public Batch toBatch() {
            return new PlannedBatch(python.toBatch(), columns);
        }

        @Override
        public MicroBatchStream toMicroBatchStream(String checkpoint) {
            MicroBatchStream stream = python.toMicroBatchStream(checkpoint);
            return new PlannedStream((SupportsTriggerAvailableNow) stream, stream, columns);
        }
    }
}
