import io.smallrye.config.PropertiesConfigSource;
import io.smallrye.config.SmallRyeConfigBuilder;
import io.smallrye.config.SmallRyeConfigProviderResolver;
import io.smallrye.mutiny.Uni;
import io.smallrye.reactive.messaging.kafka.KafkaRecord;
import io.smallrye.reactive.messaging.kafka.transactions.KafkaTransactions;
import jakarta.enterprise.context.ApplicationScoped;
import jakarta.inject.Inject;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.eclipse.microprofile.reactive.messaging.Channel;
import org.eclipse.microprofile.reactive.messaging.Incoming;
import org.eclipse.microprofile.reactive.messaging.Message;
import org.jboss.weld.environment.se.Weld;

/**
 * An application of SmallRye Reactive Messaging, the part of Quarkus that speaks Kafka: batches of
 * a topic are copied to another one, each in a transaction that holds the places of what was read.
 *
 * <p>Arguments: address, topic to read, topic to write. A line on its input ends it.
 */
@ApplicationScoped
public class SmallRyeApp {
    @Inject
    @Channel("written")
    KafkaTransactions<String> out;

    @Incoming("read")
    public Uni<Void> copy(Message<ConsumerRecords<String, String>> batch) {
        return out.withTransactionAndAck(
                batch,
                emitter -> {
                    for (ConsumerRecord<String, String> one : batch.getPayload()) {
                        emitter.send(KafkaRecord.of(one.key(), one.value()));
                    }
                    return Uni.createFrom().voidItem();
                });
    }

    public static void main(String[] args) throws Exception {
        String in = "mp.messaging.incoming.read.";
        String out = "mp.messaging.outgoing.written.";
        String string = "org.apache.kafka.common.serialization.String";
        Map<String, String> told = new HashMap<>();
        told.put("kafka.bootstrap.servers", args[0]);
        told.put(in + "connector", "smallrye-kafka");
        told.put(in + "topic", args[1]);
        told.put(in + "group.id", "copies");
        told.put(in + "batch", "true");
        told.put(in + "auto.offset.reset", "earliest");
        told.put(in + "commit-strategy", "ignore");
        told.put(in + "failure-strategy", "ignore");
        told.put(in + "session.timeout.ms", "6000");
        told.put(in + "key.deserializer", string + "Deserializer");
        told.put(in + "value.deserializer", string + "Deserializer");
        told.put(out + "connector", "smallrye-kafka");
        told.put(out + "topic", args[2]);
        told.put(out + "transactional.id", "smallrye-copies");
        told.put(out + "acks", "all");
        told.put(out + "key.serializer", string + "Serializer");
        told.put(out + "value.serializer", string + "Serializer");
        var config =
                new SmallRyeConfigBuilder()
                        .addDefaultInterceptors()
                        .withSources(new PropertiesConfigSource(told, "told", 500))
                        .build();
        SmallRyeConfigProviderResolver.instance()
                .registerConfig(config, Thread.currentThread().getContextClassLoader());
        var container = new Weld().addBeanClass(SmallRyeApp.class).initialize();
        System.out.println("ready");
        System.in.read();
        container.shutdown();
        System.exit(0);
    }
}
