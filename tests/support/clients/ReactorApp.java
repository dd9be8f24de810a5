import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import reactor.core.publisher.Flux;
import reactor.kafka.receiver.KafkaReceiver;
import reactor.kafka.receiver.ReceiverOptions;
import reactor.kafka.sender.KafkaSender;
import reactor.kafka.sender.SenderOptions;
import reactor.kafka.sender.SenderRecord;
import reactor.util.retry.Retry;

/**
 * A flux of Reactor Kafka: each value of a topic is copied to another one, a transaction per batch
 * that was polled; a flux that fails is begun again.
 *
 * <p>Arguments: address, topic to read, topic to write. A line on its input ends it.
 */
public class ReactorApp {
    public static void main(String[] args) throws Exception {
        Map<String, Object> reading =
                Map.of(
                        "bootstrap.servers", args[0],
                        "key.deserializer", StringDeserializer.class,
                        "value.deserializer", StringDeserializer.class,
                        "group.id", "copies",
                        "auto.offset.reset", "earliest",
                        "isolation.level", "read_committed",
                        "session.timeout.ms", "6000",
                        "metadata.max.age.ms", "2000",
                        "max.poll.records", "50");
        Map<String, Object> writing =
                Map.of(
                        "bootstrap.servers", args[0],
                        "key.serializer", StringSerializer.class,
                        "value.serializer", StringSerializer.class,
                        "transactional.id", "reactor-copies");
        ReceiverOptions<String, String> from =
                ReceiverOptions.<String, String>create(reading).subscription(List.of(args[1]));
        Flux<?> copies =
                Flux.using(
                        () -> KafkaSender.create(SenderOptions.<String, String>create(writing)),
                        sender ->
                                KafkaReceiver.create(from)
                                        .receiveExactlyOnce(sender.transactionManager())
                                        .concatMap(
                                                batch ->
                                                        sender.send(
                                                                        batch.map(
                                                                                one ->
                                                                                        SenderRecord
                                                                                                .create(
                                                                                                        new ProducerRecord<>(
                                                                                                                args[2],
                                                                                                                one.key(),
                                                                                                                one.value()),
                                                                                                        one
                                                                                                                .offset())))
                                                                .concatWith(
                                                                        sender.transactionManager()
                                                                                .commit())),
                        KafkaSender::close);
        var running =
                copies.retryWhen(
                                Retry.fixedDelay(1000, Duration.ofMillis(500))
                                        .doBeforeRetry(
                                                signal -> signal.failure().printStackTrace()))
                        .subscribe();
        System.out.println("ready");
        System.in.read();
        running.dispose();
        System.exit(0);
    }
}
