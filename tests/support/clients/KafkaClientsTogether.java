// The Java kafka-clients, 3.9 to 4.x: members, transactions, TLS and SCRAM.
//
//     java -cp <jars and classes> KafkaClientsTogether BOOTSTRAP PREFIX OURS
//
// The same steps as in together.py.  The other member, which is killed, is this program again:
// KafkaClientsTogether member BOOTSTRAP GROUP TOPIC.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class KafkaClientsTogether {
    static final int PARTITIONS = 4;
    static final int COUNT = 80;
    static final int TIMEOUT_S = 60;
    static final int SESSION_MS = 6_000;
    // Nobody waits for the end of one: who comes back on a busy machine must find its place.
    static final int STATIC_SESSION_MS = 60_000;

    static String bootstrap;
    static String prefix;

    interface Step {
        void run() throws Exception;
    }

    static void check(String what, Object got, Object expected) {
        if (!got.equals(expected)) {
            throw new AssertionError(what + ": got " + got + ", expected " + expected);
        }
    }

    static void until(BooleanSupplier condition, Member... members) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
        while (!condition.getAsBoolean()) {
            for (Member member : members) {
                if (member.failure != null) {
                    throw new AssertionError("a member failed", member.failure);
                }
            }
            if (System.nanoTime() > deadline) {
                throw new AssertionError("not so within " + TIMEOUT_S + " s");
            }
            Thread.sleep(20);
        }
    }

    // --- the clients

    static Map<String, Object> secure() {
        return Map.of(
                "security.protocol", "SASL_SSL",
                "ssl.truststore.type", "PEM",
                "ssl.truststore.location", System.getenv("MATRIX_AUTHORITY"),
                "sasl.mechanism", "SCRAM-SHA-256",
                "sasl.jaas.config",
                "org.apache.kafka.common.security.scram.ScramLoginModule required"
                        + " username=\"matrix\" password=\"a long password\";");
    }

    static void create(String topic, int partitions) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all()
                    .get(TIMEOUT_S, TimeUnit.SECONDS);
        }
    }

    static KafkaProducer<String, String> producer(String address, Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", address);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static List<String> send(String address, String topic, String name, int count,
            Map<String, Object> more) {
        List<String> values = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(address, more)) {
            for (int n = 0; n < count; n++) {
                values.add(name + "-" + n);
                producer.send(new ProducerRecord<>(topic, n % PARTITIONS, null, name + "-" + n));
            }
        }
        return values;
    }

    static KafkaConsumer<String, String> consumer(String address, String group, String place,
            Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", address);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("session.timeout.ms", place == null ? SESSION_MS : STATIC_SESSION_MS);
        settings.put("heartbeat.interval.ms", "500");
        if (place != null) {
            settings.put("group.instance.id", place);
        }
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** A consumer in a thread of its own. */
    static class Member implements AutoCloseable {
        final List<String> values = java.util.Collections.synchronizedList(new ArrayList<>());
        volatile Set<Integer> owned = Set.of();
        volatile Throwable failure;
        final AtomicBoolean ends = new AtomicBoolean();
        final AtomicBoolean commits = new AtomicBoolean();
        final Thread thread;

        Member(String address, String group, String topic, String place,
                Map<String, Object> more) {
            thread = new Thread(() -> {
                try (KafkaConsumer<String, String> consumer =
                        consumer(address, group, place, more)) {
                    consumer.subscribe(List.of(topic));
                    while (!ends.get()) {
                        for (ConsumerRecord<String, String> record :
                                consumer.poll(Duration.ofMillis(50))) {
                            values.add(record.value());
                        }
                        if (commits.compareAndSet(true, false)) {
                            consumer.commitSync();
                        }
                        Set<Integer> now = new TreeSet<>();
                        for (TopicPartition one : consumer.assignment()) {
                            now.add(one.partition());
                        }
                        owned = now;
                    }
                } catch (Throwable exc) {
                    failure = exc;
                }
            });
            thread.start();
        }

        Member(String topic) {
            this(bootstrap, topic, topic, null, Map.of());
        }

        void commit() throws Exception {
            commits.set(true);
            until(() -> !commits.get(), this);
        }

        @Override
        public void close() throws InterruptedException {
            ends.set(true);
            thread.join();
        }
    }

    static Set<Integer> all() {
        return new TreeSet<>(List.of(0, 1, 2, 3));
    }

    static boolean halved(Member one, Member two) {
        return one.owned.size() == PARTITIONS / 2 && two.owned.size() == PARTITIONS / 2;
    }

    // --- the steps

    static void aGroupReadsCommitsAndResumes() throws Exception {
        String topic = prefix + "-resumed";
        create(topic, PARTITIONS);
        List<String> values = send(bootstrap, topic, "first", COUNT, Map.of());
        try (Member one = new Member(topic)) {
            until(() -> one.values.size() >= COUNT, one);
            check("values", new HashSet<>(one.values), new HashSet<>(values));
            one.commit();
        }
        List<String> later = send(bootstrap, topic, "later", 20, Map.of());
        try (Member two = new Member(topic)) {
            until(() -> two.values.size() >= later.size(), two);
            check("behind what was committed", new HashSet<>(two.values), new HashSet<>(later));
        }
    }

    static void twoMembersShareAndOneLeaves() throws Exception {
        String topic = prefix + "-shared";
        create(topic, PARTITIONS);
        try (Member one = new Member(topic)) {
            until(() -> one.owned.equals(all()), one);
            try (Member two = new Member(topic)) {
                until(() -> halved(one, two), one, two);
            }
            until(() -> one.owned.equals(all()), one);
        }
    }

    static void aKilledMemberIsReplaced() throws Exception {
        String topic = prefix + "-killed";
        create(topic, PARTITIONS);
        Process process = new ProcessBuilder(
                System.getProperty("java.home") + "/bin/java", "-XX:TieredStopAtLevel=1",
                "-cp", System.getProperty("java.class.path"), KafkaClientsTogether.class.getName(),
                "member", bootstrap, topic, topic)
                .redirectError(ProcessBuilder.Redirect.DISCARD).start();
        try {
            process.inputReader().readLine();
            try (Member one = new Member(topic)) {
                until(() -> one.owned.size() == PARTITIONS / 2, one);
                process.destroyForcibly();
                until(() -> one.owned.equals(all()), one);
            }
        } finally {
            process.destroyForcibly();
        }
    }

    static void aStaticMemberComesBackToItsPlace() throws Exception {
        String topic = prefix + "-static";
        create(topic, PARTITIONS);
        try (Member one = new Member(bootstrap, topic, topic, "place-1", Map.of())) {
            until(() -> one.owned.equals(all()), one);
            Set<Integer> had;
            try (Member two = new Member(bootstrap, topic, topic, "place-2", Map.of())) {
                until(() -> halved(one, two), one, two);
                had = two.owned;
            }
            try (Member two = new Member(bootstrap, topic, topic, "place-2", Map.of())) {
                until(() -> two.owned.equals(had), one, two);
            }
        }
    }

    static void transactionsAreSeenWholeOrNotAtAll() throws Exception {
        String topic = prefix + "-transactions";
        create(topic, 1);
        List<String> expected = new ArrayList<>();
        for (String name : List.of("kept", "lost", "last")) {
            try (KafkaProducer<String, String> producer =
                    producer(bootstrap, Map.of("transactional.id", topic))) {
                producer.initTransactions();
                producer.beginTransaction();
                for (int n = 0; n < 10; n++) {
                    producer.send(new ProducerRecord<>(topic, 0, null, name + "-" + n));
                }
                producer.flush();
                if (name.equals("lost")) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                    for (int n = 0; n < 10; n++) {
                        expected.add(name + "-" + n);
                    }
                }
            }
        }
        Map<String, Object> committed = Map.of("isolation.level", "read_committed");
        try (Member one = new Member(bootstrap, topic, topic, null, committed)) {
            until(() -> one.values.size() >= expected.size(), one);
            check("committed", one.values, expected);
        }
    }

    static void offsetsGoWithTheirTransaction() throws Exception {
        String topic = prefix + "-offsets";
        create(topic, 1);
        TopicPartition first = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer =
                producer(bootstrap, Map.of("transactional.id", topic));
                KafkaConsumer<String, String> consumer =
                        consumer(bootstrap, topic, null, Map.of())) {
            producer.initTransactions();
            long[][] lots = {{3, 1, 3}, {7, 0, 3}, {9, 1, 9}};
            for (long[] lot : lots) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 0, null, "x"));
                producer.sendOffsetsToTransaction(
                        Map.of(first, new OffsetAndMetadata(lot[0])), consumer.groupMetadata());
                if (lot[1] == 1) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                check("offset", consumer.committed(Set.of(first)).get(first).offset(), lot[2]);
            }
        }
    }

    static void tlsAndScramLetInWhoKnowsThePassword() throws Exception {
        String topic = prefix + "-secured";
        String address = System.getenv("MATRIX_SECURED");
        create(topic, PARTITIONS);
        List<String> values = send(address, topic, "secured", COUNT, secure());
        try (Member one = new Member(address, topic, topic, null, secure())) {
            until(() -> one.values.size() >= COUNT, one);
            check("values", new HashSet<>(one.values), new HashSet<>(values));
        }
    }

    static void report(String step, String outcome, Throwable exc) {
        String detail = exc == null ? "" : exc + " " + exc.getCause();
        System.out.println("{\"step\": \"" + step + "\", \"outcome\": \"" + outcome
                + "\", \"detail\": \"" + detail.replaceAll("[^ !#-\\[\\]-~]", " ") + "\"}");
    }

    static void beMember(String group, String topic) {
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap, group, null, Map.of())) {
            consumer.subscribe(List.of(topic));
            boolean told = false;
            while (true) {
                consumer.poll(Duration.ofMillis(50));
                if (!told && !consumer.assignment().isEmpty()) {
                    told = true;
                    System.out.println("joined");
                }
            }
        }
    }

    public static void main(String[] words) {
        if (words[0].equals("member")) {
            bootstrap = words[1];
            beMember(words[2], words[3]);
        }
        bootstrap = words[0];
        prefix = words[1];
        Map<String, Step> steps = new LinkedHashMap<>();
        steps.put("a_group_reads_commits_and_resumes",
                KafkaClientsTogether::aGroupReadsCommitsAndResumes);
        steps.put("two_members_share_and_one_leaves",
                KafkaClientsTogether::twoMembersShareAndOneLeaves);
        steps.put("a_killed_member_is_replaced", KafkaClientsTogether::aKilledMemberIsReplaced);
        steps.put("a_static_member_comes_back_to_its_place",
                KafkaClientsTogether::aStaticMemberComesBackToItsPlace);
        steps.put("transactions_are_seen_whole_or_not_at_all",
                KafkaClientsTogether::transactionsAreSeenWholeOrNotAtAll);
        steps.put("offsets_go_with_their_transaction",
                KafkaClientsTogether::offsetsGoWithTheirTransaction);
        steps.put("tls_and_scram_let_in_who_knows_the_password",
                KafkaClientsTogether::tlsAndScramLetInWhoKnowsThePassword);
        for (Map.Entry<String, Step> step : steps.entrySet()) {
            report(step.getKey(), "begun", null);
            try {
                step.getValue().run();
                report(step.getKey(), "ok", null);
            } catch (Throwable exc) {
                report(step.getKey(), "failed", exc);
            }
        }
        System.exit(0);
    }
}
