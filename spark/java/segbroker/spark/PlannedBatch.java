package segbroker.spark;

import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;

/** A batch query: the Python source's tasks, read here. */
record PlannedBatch(Batch python, StructType columns) implements Batch {
    @Override
    public InputPartition[] planInputPartitions() {
        return RangePartition.of(python.planInputPartitions());
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return new RangeReaderFactory(columns);
    }
}
