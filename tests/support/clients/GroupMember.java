import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a group: BOOTSTRAP GROUP TOPIC [KEY=VALUE...]; a TOPIC between slashes is an
 * expression for the broker, which only group.protocol=consumer knows.
 *
 * <p>Prints "started", "read VALUE" per record and "has N" when it has other partitions than
 * before; commits what it read and leaves when its standard input ends. In the end "described
 * STATE TYPE MEMBERS" and "left".
 */
public class GroupMember {
    public static void main(String[] args) throws Exception {
        Properties conf = new Properties();
        conf.put("bootstrap.servers", args[0]);
        conf.put("group.id", args[1]);
        conf.put("auto.offset.reset", "earliest");
        conf.put("enable.auto.commit", "false");
        conf.put("key.deserializer", StringDeserializer.class.getName());
        conf.put("value.deserializer", StringDeserializer.class.getName());
        for (int n = 3; n < args.length; n++) {
            String[] pair = args[n].split("=", 2);
            conf.put(pair[0], pair[1]);
        }
        Set<?> had = new HashSet<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(conf);
                Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            System.out.println("started");
            String topic = args[2];
            if (topic.startsWith("/")) {
                consumer.subscribe(new SubscriptionPattern(topic.substring(1, topic.length() - 1)));
            } else {
                consumer.subscribe(List.of(topic));
            }
            while (System.in.available() == 0) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
                    System.out.println("read " + record.value());
                }
                try {
                    consumer.commitSync();
                } catch (RebalanceInProgressException | CommitFailedException error) {
                    // Of the classic protocol: the next poll joins again, and who gets the
                    // partitions reads it again.
                    System.out.println("not committed: " + error);
                }
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
