import io.vertx.core.Future;
import io.vertx.core.Vertx;
import io.vertx.kafka.client.consumer.KafkaConsumer;
import io.vertx.kafka.client.consumer.KafkaConsumerRecords;
import io.vertx.kafka.client.producer.KafkaProducer;
import io.vertx.kafka.client.producer.KafkaProducerRecord;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * An application of Vert.x: each value of a topic is copied to another one, a batch at a time,
 * which is committed when all of it was written.
 *
 * <p>Arguments: address, topic to read, topic to write. A line on its input ends it.
 */
public class VertxApp {
    private static final String STRING = "org.apache.kafka.common.serialization.String";

    private static void copy(
            KafkaConsumer<String, String> in,
            KafkaProducer<String, String> out,
            String topic,
            KafkaConsumerRecords<String, String> records) {
        List<Future<?>> sent = new ArrayList<>();
        for (int at = 0; at < records.size(); at++) {
            var record = records.recordAt(at);
            sent.add(out.send(KafkaProducerRecord.create(topic, record.key(), record.value())));
        }
        in.pause();
        Future.all(sent)
                .compose(all -> in.commit())
                .onFailure(Throwable::printStackTrace)
                .onComplete(done -> in.resume());
    }

    public static void main(String[] args) throws Exception {
        Vertx vertx = Vertx.vertx();
        Map<String, String> reading = new HashMap<>();
        reading.put("bootstrap.servers", args[0]);
        reading.put("key.deserializer", STRING + "Deserializer");
        reading.put("value.deserializer", STRING + "Deserializer");
        reading.put("group.id", "copies");
        reading.put("auto.offset.reset", "earliest");
        reading.put("enable.auto.commit", "false");
        reading.put("session.timeout.ms", "6000");
        reading.put("metadata.max.age.ms", "2000");
        Map<String, String> writing = new HashMap<>();
        writing.put("bootstrap.servers", args[0]);
        writing.put("key.serializer", STRING + "Serializer");
        writing.put("value.serializer", STRING + "Serializer");
        KafkaProducer<String, String> out = KafkaProducer.create(vertx, writing);
        KafkaConsumer<String, String> in = KafkaConsumer.create(vertx, reading);
        in.exceptionHandler(Throwable::printStackTrace);
        in.handler(record -> {});
        in.batchHandler(records -> copy(in, out, args[2], records));
        in.subscribe(args[1]).toCompletionStage().toCompletableFuture().get();
        System.out.println("ready");
        System.in.read();
        in.close().toCompletionStage().toCompletableFuture().get();
        out.close().toCompletionStage().toCompletableFuture().get();
        vertx.close().toCompletionStage().toCompletableFuture().get();
        System.exit(0);
    }
}
