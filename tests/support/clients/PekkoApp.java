import java.time.Duration;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.pekko.actor.ActorSystem;
import org.apache.pekko.kafka.ConsumerSettings;
import org.apache.pekko.kafka.ProducerMessage;
import org.apache.pekko.kafka.ProducerSettings;
import org.apache.pekko.kafka.Subscriptions;
import org.apache.pekko.kafka.javadsl.Consumer;
import org.apache.pekko.kafka.javadsl.Transactional;
import org.apache.pekko.stream.RestartSettings;
import org.apache.pekko.stream.javadsl.RestartSource;
import org.apache.pekko.stream.javadsl.Sink;

/**
 * A stream of Apache Pekko: each value of a topic is copied to another one, in transactions that
 * hold the places of what was read; a stream that fails is begun again.
 *
 * <p>Arguments: address, topic to read, topic to write. A line on its input ends it.
 */
public class PekkoApp {
    public static void main(String[] args) throws Exception {
        ActorSystem system = ActorSystem.create("pekko");
        var reading =
                ConsumerSettings.create(system, new StringDeserializer(), new StringDeserializer())
                        .withBootstrapServers(args[0])
                        .withGroupId("copies")
                        .withProperty("auto.offset.reset", "earliest")
                        .withProperty("session.timeout.ms", "6000")
                        .withProperty("metadata.max.age.ms", "2000");
        var writing =
                ProducerSettings.create(system, new StringSerializer(), new StringSerializer())
                        .withBootstrapServers(args[0])
                        .withEosCommitInterval(Duration.ofMillis(200));
        var control = new AtomicReference<>(Consumer.createNoopControl());
        var restarts = RestartSettings.create(Duration.ofMillis(100), Duration.ofSeconds(2), 0.2);
        RestartSource.onFailuresWithBackoff(
                        restarts,
                        () ->
                                Transactional.source(reading, Subscriptions.topics(args[1]))
                                        .mapMaterializedValue(
                                                one -> {
                                                    control.set(one);
                                                    return one;
                                                })
                                        .map(
                                                message ->
                                                        ProducerMessage.single(
                                                                new ProducerRecord<>(
                                                                        args[2],
                                                                        message.record().key(),
                                                                        message.record().value()),
                                                                message.partitionOffset()))
                                        .via(Transactional.flow(writing, "pekko-copies")))
                .runWith(Sink.ignore(), system);
        System.out.println("ready");
        System.in.read();
        control.get().shutdown().toCompletableFuture().get();
        system.terminate();
        system.getWhenTerminated().toCompletableFuture().get();
        System.exit(0);
    }
}
