import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Confluent's Parallel Consumer: each value of a topic is copied to another one, sixteen at a time
 * and in any order. What it is done with beyond the first that it is not, it keeps in the metadata
 * of the committed offset.
 *
 * <p>Arguments: address, topic to read, topic to write. A line on its input ends it.
 */
public class ParallelApp {
    public static void main(String[] args) throws Exception {
        Map<String, Object> reading =
                Map.of(
                        "bootstrap.servers", args[0],
                        "key.deserializer", StringDeserializer.class,
                        "value.deserializer", StringDeserializer.class,
                        "group.id", "copies",
                        "auto.offset.reset", "earliest",
                        "isolation.level", "read_committed",
                        "enable.auto.commit", false,
                        "session.timeout.ms", "6000",
                        "metadata.max.age.ms", "2000");
        Map<String, Object> writing =
                Map.of(
                        "bootstrap.servers", args[0],
                        "key.serializer", StringSerializer.class,
                        "value.serializer", StringSerializer.class,
                        "transactional.id", "parallel-copies");
        var options =
                ParallelConsumerOptions.<String, String>builder()
                        .ordering(ProcessingOrder.UNORDERED)
                        .commitMode(CommitMode.PERIODIC_TRANSACTIONAL_PRODUCER)
                        .commitInterval(Duration.ofMillis(200))
                        .maxConcurrency(16)
                        .consumer(new KafkaConsumer<>(reading))
                        .producer(new KafkaProducer<>(writing))
                        .build();
        var parallel = ParallelStreamProcessor.createEosStreamProcessor(options);
        parallel.subscribe(List.of(args[1]));
        parallel.pollAndProduce(
                context -> {
                    int n = context.value().hashCode() & 31;
                    try {
                        Thread.sleep(n);
                    } catch (InterruptedException stopped) {
                        throw new IllegalStateException(stopped);
                    }
                    return new ProducerRecord<>(args[2], context.key(), context.value());
                });
        System.out.println("ready");
        System.in.read();
        parallel.closeDrainFirst();
        System.exit(0);
    }
}
