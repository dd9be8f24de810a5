// The Java kafka-clients over TLS and logins.
//
//     java -cp <jars and classes> KafkaClientsLogins FILE
//
// FILE: lines of NAME<TAB>TASK<TAB>key=value<TAB>key=value...  For each one line is printed: NAME, a
// tab, and "ok" or the class and message of what was thrown.  Tasks:
//
//     records   produce one record and read it back
//     users     set, describe and delete the SCRAM password of a user
//     renew     produce until sessions were renewed twice; one whose renewal comes late on a busy
//               machine costs its connection, and the next one is renewed

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

public class KafkaClientsLogins {
    static final String BYTES = "org.apache.kafka.common.serialization.ByteArray";
    static final int TIMEOUT_S = 60;

    public static void main(String[] args) throws Exception {
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            String[] parts = line.split("\t");
            Properties properties = new Properties();
            properties.put("key.serializer", BYTES + "Serializer");
            properties.put("value.serializer", BYTES + "Serializer");
            properties.put("key.deserializer", BYTES + "Deserializer");
            properties.put("value.deserializer", BYTES + "Deserializer");
            properties.put("max.block.ms", "60000");
            properties.put("default.api.timeout.ms", "60000");
            properties.put("request.timeout.ms", "10000");
            for (int n = 2; n < parts.length; n++) {
                String[] pair = parts[n].split("=", 2);
                properties.put(pair[0], pair[1]);
            }
            String said = "ok";
            try {
                switch (parts[1]) {
                    case "records" -> records(parts[0], properties);
                    case "users" -> users(properties);
                    case "renew" -> renew(properties);
                    default -> throw new IllegalArgumentException(parts[1]);
                }
            } catch (Throwable thrown) {
                Throwable cause = thrown;
                while (cause.getCause() != null) {
                    if (cause.getClass().getName().contains("AuthenticationException")) break;
                    cause = cause.getCause();
                }
                said = cause.getClass().getSimpleName() + ": " + cause.getMessage();
            }
            System.out.println(parts[0] + "\t" + said.replace('\n', ' '));
        }
    }

    static void records(String name, Properties properties) throws Exception {
        String topic = "java-" + name;
        byte[] value = new byte[100_000];
        value[99_999] = 7;
        try (var producer = new KafkaProducer<byte[], byte[]>(properties)) {
            producer.send(new ProducerRecord<>(topic, 0, null, value)).get(TIMEOUT_S, TimeUnit.SECONDS);
        }
        try (var consumer = new KafkaConsumer<byte[], byte[]>(properties)) {
            var partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
            while (System.nanoTime() < until) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    if (!java.util.Arrays.equals(record.value(), value)) {
                        throw new AssertionError("another record than was sent");
                    }
                    return;
                }
            }
            throw new AssertionError("no record came");
        }
    }

    static void users(Properties properties) throws Exception {
        try (Admin admin = Admin.create(properties)) {
            var info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096);
            admin.alterUserScramCredentials(
                    List.of(new UserScramCredentialUpsertion("java", info, "secret".getBytes(), "salty".getBytes())))
                .all().get(TIMEOUT_S, TimeUnit.SECONDS);
            var described = admin.describeUserScramCredentials(List.of("java"))
                .description("java").get(TIMEOUT_S, TimeUnit.SECONDS);
            if (!described.credentialInfos().equals(List.of(info))) {
                throw new AssertionError(described.toString());
            }
            Properties his = new Properties();
            his.putAll(properties);
            his.put("sasl.mechanism", "SCRAM-SHA-512");
            his.put("sasl.jaas.config",
                "org.apache.kafka.common.security.scram.ScramLoginModule required"
                    + " username=\"java\" password=\"secret\";");
            records("user-java", his);
            admin.alterUserScramCredentials(
                    List.of(new UserScramCredentialDeletion("java", ScramMechanism.SCRAM_SHA_512)))
                .all().get(TIMEOUT_S, TimeUnit.SECONDS);
        }
    }

    static void renew(Properties properties) throws Exception {
        try (var producer = new KafkaProducer<byte[], byte[]>(properties)) {
            long latest = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
            while (renewals(producer) < 2 && System.nanoTime() < latest) {
                producer.send(new ProducerRecord<>("java-renew", 0, null, new byte[10]))
                    .get(TIMEOUT_S, TimeUnit.SECONDS);
                Thread.sleep(50);
            }
        }
    }

    static double renewals(KafkaProducer<byte[], byte[]> producer) {
        return producer.metrics().values().stream()
            .filter(metric -> metric.metricName().name().equals("successful-reauthentication-total"))
            .mapToDouble(metric -> (double) metric.metricValue())
            .max().orElse(0);
    }
}
