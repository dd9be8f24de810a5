import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A job of Flink on a cluster inside this process: how often each value of a topic came, written to
 * another one as `value=count` at each, exactly once, in a transaction per checkpoint.
 *
 * Arguments: address, topic to read, topic to write, folder of the checkpoints. It goes
 * on from the newest checkpoint that it finds, prints its states, and ends when its input does.
 */
public class FlinkApp {
    private static final Map<String, String> SETTINGS =
            Map.of(
                    "execution.checkpointing.interval", "500ms",
                    "execution.checkpointing.externalized-checkpoint-retention",
                            "RETAIN_ON_CANCELLATION",
                    "execution.checkpointing.storage", "filesystem",
                    "restart-strategy.type", "fixed-delay",
                    "restart-strategy.fixed-delay.attempts", "1000",
                    "restart-strategy.fixed-delay.delay", "500ms");

    static class Counted extends RichMapFunction<String, String> {
        private transient ValueState<Long> count;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public String map(String value) throws Exception {
            long came = count.value() == null ? 1 : count.value() + 1;
            count.update(came);
            return value + "=" + came;
        }
    }

    private static Optional<Path> newest(Path folder) throws Exception {
        try (Stream<Path> found = Files.walk(folder)) {
            return found.filter(path -> path.endsWith("_metadata"))
                    .max(Comparator.comparingLong(path -> path.toFile().lastModified()))
                    .map(Path::getParent);
        }
    }

    public static void main(String[] args) throws Exception {
        String address = args[0];
        Path folder = Files.createDirectories(Path.of(args[3]).toAbsolutePath());
        Configuration settings = Configuration.fromMap(SETTINGS);
        settings.setString("execution.checkpointing.dir", folder.toUri().toString());
        Optional<Path> last = newest(folder);
        last.ifPresent(
                path ->
                        settings.setString(
                                "execution.state-recovery.path", path.toUri().toString()));
        StreamExecutionEnvironment flink =
                StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        KafkaSource<String> source =
                KafkaSource.<String>builder()
                        .setBootstrapServers(address)
                        .setTopics(args[1])
                        .setGroupId(args[2])
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setValueOnlyDeserializer(new SimpleStringSchema())
                        .build();
        KafkaSink<String> sink =
                KafkaSink.<String>builder()
                        .setBootstrapServers(address)
                        .setRecordSerializer(
                                KafkaRecordSerializationSchema.<String>builder()
                                        .setTopic(args[2])
                                        .setKeySerializationSchema(
                                                (String line) -> line.split("=")[0].getBytes())
                                        .setValueSerializationSchema(new SimpleStringSchema())
                                        .build())
                        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                        .setTransactionalIdPrefix(args[2])
                        .setProperty("transaction.timeout.ms", "600000")
                        .build();
        flink.fromSource(source, WatermarkStrategy.noWatermarks(), "in")
                .keyBy(value -> value)
                .map(new Counted())
                .sinkTo(sink);
        JobClient job = flink.executeAsync("counted");
        System.out.println("from " + last.map(path -> "a checkpoint").orElse("the start"));
        JobStatus said = null;
        while (System.in.available() == 0) {
            JobStatus status = job.getJobStatus().get();
            if (status != said) System.out.println("state " + status);
            said = status;
            Thread.sleep(100);
        }
        job.cancel().get();
        System.out.println("cancelled");
        System.exit(0);
    }
}
