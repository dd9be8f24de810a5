// Transactions of the Java kafka-clients, 3.9 to 4.x.
//
//     java -cp <jars and classes> TransactionSteps BOOTSTRAP PREFIX OURS [STEP ...]
//
// Reports like tests/support/clients/steps.py.  Version 2 of the protocol (KIP-890) is what a
// client of 4.x takes where the broker offers it: then every end has another epoch.

import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class TransactionSteps {
    static final int PARTITIONS = 2;
    static final int TIMEOUT_S = 20;

    static String bootstrap;
    static String prefix;

    interface Step {
        void run() throws Exception;
    }

    static void checkEqual(String what, Object got, Object expected) {
        if (!Objects.equals(got, expected)) {
            throw new AssertionError(what + ": got " + got + ", expected " + expected);
        }
    }

    static Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    static String topic(String name) throws Exception {
        String topic = prefix + "-" + name;
        try (Admin admin = admin()) {
            NewTopic made = new NewTopic(topic, PARTITIONS, (short) 1);
            admin.createTopics(List.of(made)).all().get(TIMEOUT_S, TimeUnit.SECONDS);
        }
        return topic;
    }

    static KafkaProducer<String, String> producer(String id) {
        return producer(id, 60_000);
    }

    static KafkaProducer<String, String> producer(String id, int timeoutMs) {
        Map<String, Object> config = new HashMap<>();
        config.put("transaction.timeout.ms", timeoutMs);
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", id);
        config.put("max.block.ms", TIMEOUT_S * 1000);
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String group, String isolation) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("isolation.level", isolation);
        config.put("enable.auto.commit", false);
        config.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    static List<TopicPartition> partitions(String topic) {
        List<TopicPartition> all = new ArrayList<>();
        for (int n = 0; n < PARTITIONS; n++) {
            all.add(new TopicPartition(topic, n));
        }
        return all;
    }

    static List<String> send(KafkaProducer<String, String> producer, String topic, String what) {
        List<String> values = new ArrayList<>();
        for (int n = 0; n < 6; n++) {
            values.add(what + n);
            producer.send(new ProducerRecord<>(topic, n % PARTITIONS, null, what + n));
        }
        return values;
    }

    /** What a reader sees between the start and the end of its isolation level, sorted. */
    static List<String> read(String topic, String isolation) {
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer(topic + "-reader", isolation)) {
            List<TopicPartition> all = partitions(topic);
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
            while (all.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                if (System.nanoTime() > deadline) {
                    throw new AssertionError("stays before the end " + ends);
                }
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    values.add(record.value());
                }
            }
        }
        Collections.sort(values);
        return values;
    }

    static List<String> sorted(List<String> values) {
        List<String> copy = new ArrayList<>(values);
        Collections.sort(copy);
        return copy;
    }

    // --- the steps

    static void readersOfCommittedRecordsSeeWhatWasCommittedAlone() throws Exception {
        String topic = topic("committed");
        List<String> committed = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(topic)) {
            producer.initTransactions();
            for (int round = 0; round < 3; round++) {
                producer.beginTransaction();
                committed.addAll(send(producer, topic, "committed-" + round + "-"));
                producer.commitTransaction();
                producer.beginTransaction();
                send(producer, topic, "aborted-" + round + "-");
                producer.flush();
                producer.abortTransaction();
            }
            producer.beginTransaction();
            send(producer, topic, "open-");
            producer.flush();
            checkEqual("committed", read(topic, "read_committed"), sorted(committed));
            checkEqual("all", read(topic, "read_uncommitted").size(), 7 * 6);
            producer.abortTransaction();
        }
    }

    static void aSecondInstanceFencesTheFirst() throws Exception {
        String topic = topic("fenced");
        try (KafkaProducer<String, String> first = producer(topic);
                KafkaProducer<String, String> second = producer(topic)) {
            first.initTransactions();
            first.beginTransaction();
            send(first, topic, "first-");
            first.flush();
            second.initTransactions();
            try {
                first.commitTransaction();
                throw new AssertionError("the first one committed");
            } catch (KafkaException fenced) {
                // as it should
            }
            second.beginTransaction();
            List<String> values = send(second, topic, "second-");
            second.commitTransaction();
            checkEqual("committed", read(topic, "read_committed"), values);
        }
    }

    static void offsetsAndRecordsAreCommittedTogether() throws Exception {
        String in = topic("in");
        String out = topic("out");
        try (KafkaProducer<String, String> producer = producer(in)) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, in, "in-");
            producer.commitTransaction();
        }
        String group = in + "-group";
        for (boolean commits : new boolean[] {false, true}) {
            try (KafkaProducer<String, String> producer = producer(out);
                    KafkaConsumer<String, String> consumer = consumer(group, "read_committed")) {
                producer.initTransactions();
                consumer.subscribe(List.of(in));
                int seen = 0;
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
                while (seen < 6 && System.nanoTime() < deadline) {
                    for (ConsumerRecord<String, String> record :
                            consumer.poll(Duration.ofMillis(100))) {
                        producer.send(
                                new ProducerRecord<>(out, record.partition(), null, record.value()));
                        offsets.put(
                                new TopicPartition(in, record.partition()),
                                new OffsetAndMetadata(record.offset() + 1));
                        seen++;
                    }
                }
                checkEqual("records read, commits " + commits, seen, 6);
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (commits) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
                List<String> seenOutside = read(out, "read_committed");
                checkEqual("records out", seenOutside.size(), commits ? 6 : 0);
                Map<TopicPartition, OffsetAndMetadata> stand =
                        consumer.committed(Map.copyOf(offsets).keySet());
                for (Map.Entry<TopicPartition, OffsetAndMetadata> row : offsets.entrySet()) {
                    checkEqual(
                            "stands at " + row.getKey(),
                            stand.get(row.getKey()),
                            commits ? row.getValue() : null);
                }
            }
        }
    }

    static void operatorsSeeTransactionsAndProducers() throws Exception {
        String topic = topic("described");
        try (KafkaProducer<String, String> producer = producer(topic); Admin admin = admin()) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, topic, "open-");
            producer.flush();
            TransactionDescription open =
                    admin.describeTransactions(List.of(topic)).description(topic).get();
            checkEqual("state", open.state().toString(), "Ongoing");
            checkEqual("partitions", open.topicPartitions().size(), PARTITIONS);
            TransactionListing listed = null;
            for (TransactionListing one : admin.listTransactions().all().get()) {
                listed = one.transactionalId().equals(topic) ? one : listed;
            }
            checkEqual("listed", listed.producerId(), open.producerId());
            TopicPartition first = new TopicPartition(topic, 0);
            List<ProducerState> producers = admin.describeProducers(List.of(first))
                    .partitionResult(first).get().activeProducers();
            checkEqual("producers", producers.size(), 1);
            checkEqual("producer", producers.get(0).producerId(), open.producerId());
            checkEqual(
                    "open from", producers.get(0).currentTransactionStartOffset().getAsLong(), 0L);
            producer.commitTransaction();
            producers = admin.describeProducers(List.of(first))
                    .partitionResult(first).get().activeProducers();
            checkEqual(
                    "open", producers.get(0).currentTransactionStartOffset().isPresent(), false);
        }
    }

    /** The epochs of a producer after each of three transactions. */
    static List<Integer> epochs(String topic) throws Exception {
        List<Integer> epochs = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(topic); Admin admin = admin()) {
            producer.initTransactions();
            for (int n = 0; n < 3; n++) {
                producer.beginTransaction();
                send(producer, topic, "record-" + n + "-");
                producer.commitTransaction();
                epochs.add(admin.describeTransactions(List.of(topic))
                        .description(topic).get().producerEpoch());
            }
        }
        return epochs;
    }

    static void everyTransactionHasAnotherEpochWhereTheClientKnowsVersion2() throws Exception {
        List<Integer> expected = knowsVersion2() ? List.of(1, 2, 3) : List.of(0, 0, 0);
        checkEqual("epochs", epochs(topic("epochs")), expected);
    }

    static boolean knowsVersion2() {
        return !org.apache.kafka.common.utils.AppInfoParser.getVersion().startsWith("3.");
    }

    static void whoseTimeWasOverAbortsAndGoesOnWhereTheClientKnowsVersion2() throws Exception {
        if (!knowsVersion2()) {
            return;
        }
        String topic = topic("late");
        try (KafkaProducer<String, String> producer = producer(topic, 500); Admin admin = admin()) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, topic, "late-");
            producer.flush();
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(2 * TIMEOUT_S);
            while (!admin.describeTransactions(List.of(topic)).description(topic).get()
                    .state().toString().equals("CompleteAbort")) {
                checkEqual("is late", System.nanoTime() > deadline, false);
                Thread.sleep(50);
            }
            producer.abortTransaction();
            producer.beginTransaction();
            List<String> values = send(producer, topic, "next-");
            producer.commitTransaction();
            checkEqual("committed", read(topic, "read_committed"), sorted(values));
        }
    }

    static void report(String step, String outcome, String detail) {
        StringBuilder text = new StringBuilder();
        for (char c : detail.toCharArray()) {
            if (c == '"' || c == '\\') {
                text.append('\\').append(c);
            } else if (c < ' ') {
                text.append(String.format("\\u%04x", (int) c));
            } else {
                text.append(c);
            }
        }
        byte[] line = ("{\"step\": \"" + step + "\", \"outcome\": \"" + outcome
                + "\", \"detail\": \"" + text + "\"}\n").getBytes(StandardCharsets.UTF_8);
        System.out.write(line, 0, line.length);
        System.out.flush();
    }

    public static void main(String[] words) {
        bootstrap = words[0];
        prefix = words[1];
        List<String> wanted = Arrays.asList(words).subList(3, words.length);
        Map<String, Step> steps = new LinkedHashMap<>();
        steps.put("readers_of_committed_records_see_what_was_committed_alone",
                TransactionSteps::readersOfCommittedRecordsSeeWhatWasCommittedAlone);
        steps.put("a_second_instance_fences_the_first",
                TransactionSteps::aSecondInstanceFencesTheFirst);
        steps.put("offsets_and_records_are_committed_together",
                TransactionSteps::offsetsAndRecordsAreCommittedTogether);
        steps.put("operators_see_transactions_and_producers",
                TransactionSteps::operatorsSeeTransactionsAndProducers);
        steps.put("every_transaction_has_another_epoch_where_the_client_knows_version_2",
                TransactionSteps::everyTransactionHasAnotherEpochWhereTheClientKnowsVersion2);
        steps.put("whose_time_was_over_aborts_and_goes_on_where_the_client_knows_version_2",
                TransactionSteps::whoseTimeWasOverAbortsAndGoesOnWhereTheClientKnowsVersion2);
        for (Map.Entry<String, Step> step : steps.entrySet()) {
            if (!wanted.isEmpty() && !wanted.contains(step.getKey())) {
                continue;
            }
            report(step.getKey(), "begun", "");
            try {
                step.getValue().run();
                report(step.getKey(), "ok", "");
            } catch (Throwable exc) {
                StringWriter trace = new StringWriter();
                exc.printStackTrace(new PrintWriter(trace));
                report(step.getKey(), "failed", trace.toString());
            }
        }
    }
}
