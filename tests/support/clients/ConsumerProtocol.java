import java.time.Duration;
import java.util.HashSet;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of the consumer protocol (KIP-848): BOOTSTRAP GROUP EXPRESSION.
 *
 * <p>Prints "read VALUE" per record and "has N" when it has other partitions than before; commits
 * what it read and leaves when its standard input ends. In the end "described STATE MEMBERS".
 */
public class ConsumerProtocol {
    public static void main(String[] args) throws Exception {
        Properties conf = new Properties();
        conf.put("bootstrap.servers", args[0]);
        conf.put("group.id", args[1]);
        conf.put("group.protocol", "consumer");
        conf.put("auto.offset.reset", "earliest");
        conf.put("enable.auto.commit", "false");
        conf.put("key.deserializer", StringDeserializer.class.getName());
        conf.put("value.deserializer", StringDeserializer.class.getName());
        Set<?> had = new HashSet<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(conf);
                Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            consumer.subscribe(new SubscriptionPattern(args[2]));
            while (System.in.available() == 0) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
                    System.out.println("read " + record.value());
                }
                consumer.commitSync();
                if (!had.equals(consumer.assignment())) {
                    had = new HashSet<>(consumer.assignment());
                    Set<Integer> indexes = new TreeSet<>();
                    consumer.assignment().forEach(one -> indexes.add(one.partition()));
                    System.out.println("has " + indexes);
                }
                System.out.flush();
            }
            ConsumerGroupDescription group =
                    admin.describeConsumerGroups(Set.of(args[1])).all().get().get(args[1]);
            System.out.println(
                    "described " + group.groupState() + " " + group.type() + " " + group.members().size());
        }
        System.out.println("left");
    }
}
