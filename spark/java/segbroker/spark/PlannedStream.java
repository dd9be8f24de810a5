package segbroker.spark;

import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;

/** A stream: every decision is the Python source's, the tasks are read here. */
record PlannedStream(
        SupportsTriggerAvailableNow admission, MicroBatchStream python, StructType columns)
        implements MicroBatchStream, SupportsTriggerAvailableNow {
    @Override
    public Offset initialOffset() {
        return python.initialOffset();
    }

    @Override
    public Offset deserializeOffset(String json) {
        return python.deserializeOffset(json);
    }

    @Override
    public void prepareForTriggerAvailableNow() {
        admission.prepareForTriggerAvailableNow();
    }

    @Override
    public ReadLimit getDefaultReadLimit() {
        return admission.getDefaultReadLimit();
    }

    @Override
    public Offset latestOffset() {
        throw new UnsupportedOperationException("asked with a start and a limit");
    }

    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
        return admission.latestOffset(start, limit);
    }

    @Override
    public Offset reportLatestOffset() {
        return admission.reportLatestOffset();
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        return RangePartition.of(python.planInputPartitions(start, end));
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return new RangeReaderFactory(columns);
    }

    @Override
    public void commit(Offset end) {
        python.commit(end);
    }

    @Override
    public void stop() {
        python.stop();
    }
}
