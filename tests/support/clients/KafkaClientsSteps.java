// The Java kafka-clients, 3.9 to 4.x: what their users do, without groups and transactions.
//
//     java -cp <jars and classes> KafkaClientsSteps BOOTSTRAP PREFIX OURS [STEP ...]
//
// It reports like tests/support/clients/steps.py, and sends what
// tests/support/clients/lots.py says.  The steps are listed in main; the test reads their names
// there.

import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class KafkaClientsSteps {
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    static final int COUNT = 100;
    static final long FIRST_MS = 1_700_000_000_000L;
    static final long STEP_MS = 1000;
    static final int TIMEOUT_S = 60;

    static String bootstrap;
    static String prefix;
    static String ours;

    interface Step {
        void run() throws Exception;
    }

    // --- what is sent, and what must come back (lots.py)

    static byte[] value(int n) {
        return ("the value of record " + n + ", ").repeat(10).getBytes(StandardCharsets.UTF_8);
    }

    static byte[] key(int n) {
        return ("key-" + n).getBytes(StandardCharsets.UTF_8);
    }

    static long timestampMs(int n) {
        return FIRST_MS + n * STEP_MS;
    }

    static void checkEqual(String what, Object got, Object expected) {
        if (!Objects.equals(got, expected)) {
            throw new AssertionError(what + ": got " + got + ", expected " + expected);
        }
    }

    interface Question {
        Object ask() throws Exception;
    }

    /** checkEqual with patience: a Kafka cluster applies admin requests after answering them. */
    static void checkBecomes(String what, Question question, Object expected) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(5);
        Object got = question.ask();
        while (!Objects.equals(got, expected) && System.nanoTime() < deadline) {
            Thread.sleep(50);
            got = question.ask();
        }
        checkEqual(what, got, expected);
    }

    static void checkRefused(Future<?> future, Class<? extends Exception> expected)
            throws Exception {
        try {
            future.get(TIMEOUT_S, TimeUnit.SECONDS);
        } catch (ExecutionException exc) {
            if (expected.isInstance(exc.getCause())) {
                return;
            }
            throw exc;
        }
        throw new AssertionError("not refused with " + expected.getSimpleName());
    }

    // --- the clients

    static String topic(String name) {
        return prefix + "-" + name;
    }

    static TopicPartition first(String topic) {
        return new TopicPartition(topic, 0);
    }

    static Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    static <T> T wait(Future<T> future) throws Exception {
        return future.get(TIMEOUT_S, TimeUnit.SECONDS);
    }

    static void create(String topic, int partitions, String... configs) throws Exception {
        // The records are years old: without this a broker would soon expire them.
        Map<String, String> map = new HashMap<>(Map.of("retention.ms", "-1"));
        for (int i = 0; i < configs.length; i += 2) {
            map.put(configs[i], configs[i + 1]);
        }
        try (Admin admin = admin()) {
            NewTopic made = new NewTopic(topic, partitions, (short) 1).configs(map);
            wait(admin.createTopics(List.of(made)).all());
        }
    }

    static KafkaProducer<byte[], byte[]> producer(String... settings) {
        Map<String, Object> map = new HashMap<>();
        map.put("bootstrap.servers", bootstrap);
        map.put("linger.ms", "20");
        for (int i = 0; i < settings.length; i += 2) {
            map.put(settings[i], settings[i + 1]);
        }
        return new KafkaProducer<>(map, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static List<RecordMetadata> produce(String topic, int count, String... settings)
            throws Exception {
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            for (int n = 0; n < count; n++) {
                ProducerRecord<byte[], byte[]> record =
                        new ProducerRecord<>(topic, 0, timestampMs(n), key(n), value(n));
                record.headers().add("n", Integer.toString(n).getBytes(StandardCharsets.UTF_8));
                record.headers().add("empty", new byte[0]);
                futures.add(producer.send(record));
            }
        }
        List<RecordMetadata> answers = new ArrayList<>();
        for (Future<RecordMetadata> future : futures) {
            answers.add(wait(future));
        }
        return answers;
    }

    static KafkaConsumer<byte[], byte[]> consumerAt(
            String topic, Integer offset, String... settings) {
        Map<String, Object> map = new HashMap<>();
        map.put("bootstrap.servers", bootstrap);
        map.put("enable.auto.commit", "false");
        map.put("auto.offset.reset", "none");
        for (int i = 0; i < settings.length; i += 2) {
            map.put(settings[i], settings[i + 1]);
        }
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(map, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.assign(List.of(first(topic)));
        if (offset != null) {
            consumer.seek(first(topic), offset);
        }
        return consumer;
    }

    static List<ConsumerRecord<byte[], byte[]>> poll(
            KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
        while (records.size() < count) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError(records.size() + " of " + count + " records came");
            }
            consumer.poll(Duration.ofSeconds(1)).forEach(records::add);
        }
        return records;
    }

    static List<ConsumerRecord<byte[], byte[]>> consume(
            String topic, int count, String... settings) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumerAt(topic, 0, settings)) {
            return poll(consumer, count);
        }
    }

    static void checkLot(List<ConsumerRecord<byte[], byte[]>> records) {
        checkEqual("count", records.size(), COUNT);
        for (int n = 0; n < records.size(); n++) {
            ConsumerRecord<byte[], byte[]> record = records.get(n);
            checkEqual("offset", record.offset(), (long) n);
            checkEqual("value", new String(record.value()), new String(value(n)));
            checkEqual("key", new String(record.key()), new String(key(n)));
            checkEqual("time", record.timestamp(), timestampMs(n));
            List<String> headers = new ArrayList<>();
            for (Header header : record.headers()) {
                headers.add(header.key() + "=" + new String(header.value()));
            }
            checkEqual("headers", headers, List.of("n=" + n, "empty="));
        }
    }

    // --- the steps

    static void everyCodecComesBackAsSent() throws Exception {
        // The default producer: idempotent, acks=all.
        for (String codec : CODECS) {
            String topic = topic("theirs-" + codec);
            create(topic, 1);
            List<RecordMetadata> answers = produce(topic, COUNT, "compression.type", codec);
            for (int n = 0; n < COUNT; n++) {
                checkEqual("answered offset", answers.get(n).offset(), (long) n);
            }
            checkLot(consume(topic, COUNT));
        }
    }

    static void everyCodecComesBackFromAProducerWithoutIdempotence() throws Exception {
        for (String codec : CODECS) {
            String topic = topic("plain-" + codec);
            create(topic, 1);
            produce(topic, COUNT, "compression.type", codec, "enable.idempotence", "false");
            checkLot(consume(topic, COUNT));
        }
    }

    static void readsWhatOurClientWrote() throws Exception {
        for (String codec : CODECS) {
            checkLot(consume(ours + "-" + codec, COUNT));
            checkLot(consume(ours + "-" + codec, COUNT, "isolation.level", "read_committed"));
        }
    }

    static void everyKindOfAcksDelivers() throws Exception {
        for (String acks : List.of("0", "1", "all")) {
            String topic = topic("acks-" + acks);
            create(topic, 1);
            produce(topic, COUNT, "acks", acks, "enable.idempotence", "false");
            checkLot(consume(topic, COUNT));
        }
    }

    static void aTopicIsMadeOnFirstUse() throws Exception {
        String topic = topic("first-use");
        produce(topic, COUNT);
        checkLot(consume(topic, COUNT));
    }

    static void manyBatchesOfOneIdempotentProducerKeepTheirOrder() throws Exception {
        // Batches of a few records, five in flight: sequences and pipelining.
        String topic = topic("many");
        create(topic, 1);
        int count = 5000;
        produce(topic, count, "batch.size", "2048", "linger.ms", "0");
        List<ConsumerRecord<byte[], byte[]>> records =
                consume(topic, count, "max.poll.records", "1000");
        for (int n = 0; n < count; n++) {
            checkEqual("key", new String(records.get(n).key()), new String(key(n)));
        }
    }

    static void anOffsetIsFoundByTimeToTheExactRecord() throws Exception {
        String topic = topic("times");
        create(topic, 1);
        produce(topic, COUNT, "compression.type", "gzip");
        TopicPartition partition = first(topic);
        try (KafkaConsumer<byte[], byte[]> consumer = consumerAt(topic, null)) {
            Map<Long, Integer> cases = Map.of(0L, 0, timestampMs(41) + 1, 42, timestampMs(99), 99);
            for (Map.Entry<Long, Integer> entry : cases.entrySet()) {
                OffsetAndTimestamp found =
                        consumer.offsetsForTimes(Map.of(partition, entry.getKey())).get(partition);
                checkEqual("offset", found.offset(), (long) entry.getValue());
                checkEqual("time", found.timestamp(), timestampMs(entry.getValue()));
            }
            Map<TopicPartition, OffsetAndTimestamp> later =
                    consumer.offsetsForTimes(Map.of(partition, timestampMs(COUNT)));
            checkEqual("after the last", later.get(partition), null);
            checkEqual("start", consumer.beginningOffsets(List.of(partition)).get(partition), 0L);
            checkEqual("end", consumer.endOffsets(List.of(partition)).get(partition), 100L);
        }
    }

    static void seeksToAnOffsetTheStartAndTheEnd() throws Exception {
        String topic = topic("seek");
        create(topic, 1);
        produce(topic, COUNT);
        TopicPartition partition = first(topic);
        try (KafkaConsumer<byte[], byte[]> consumer = consumerAt(topic, 37)) {
            checkEqual("offset 37", new String(poll(consumer, COUNT - 37).get(0).value()),
                    new String(value(37)));
            checkEqual("position behind the last", consumer.position(partition), (long) COUNT);
            consumer.seekToBeginning(List.of(partition));
            checkEqual("position at the start", consumer.position(partition), 0L);
            consumer.seekToEnd(List.of(partition));
            checkEqual("position at the end", consumer.position(partition), (long) COUNT);
            checkEqual("lag", consumer.currentLag(partition).orElse(0), 0L);
        }
    }

    static void anOffsetOutOfRangeIsSaidOrFallsBackToTheResetPolicy() throws Exception {
        String topic = topic("range");
        create(topic, 1);
        produce(topic, COUNT);
        try (KafkaConsumer<byte[], byte[]> consumer = consumerAt(topic, COUNT + 1000)) {
            poll(consumer, 1);
            throw new AssertionError("an offset out of range was served");
        } catch (org.apache.kafka.clients.consumer.OffsetOutOfRangeException exc) {
            checkEqual("offset", exc.offsetOutOfRangePartitions().get(first(topic)), 1100L);
        }
        try (KafkaConsumer<byte[], byte[]> consumer =
                consumerAt(topic, COUNT + 1000, "auto.offset.reset", "earliest")) {
            checkEqual("first offset", poll(consumer, COUNT).get(0).offset(), 0L);
        }
    }

    static void aConsumerThatWaitsAtTheEndIsWoken() throws Exception {
        String topic = topic("woken");
        create(topic, 1);
        try (KafkaConsumer<byte[], byte[]> consumer = consumerAt(topic, 0)) {
            checkEqual("an empty topic", consumer.poll(Duration.ofMillis(300)).count(), 0);
            Thread sender = new Thread(() -> {
                try {
                    produce(topic, 1);
                } catch (Exception exc) {
                    throw new IllegalStateException(exc);
                }
            });
            sender.start();
            checkEqual("value", new String(poll(consumer, 1).get(0).value()),
                    new String(value(0)));
            sender.join();
        }
    }

    static void nullAndEmptyKeysAndValuesAreToldApart() throws Exception {
        String topic = topic("nulls");
        create(topic, 1);
        byte[][][] pairs = {{key(0), null}, {null, value(0)}, {{}, {}}, {key(1), value(1)}};
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            for (byte[][] pair : pairs) {
                wait(producer.send(new ProducerRecord<>(topic, 0, pair[0], pair[1])));
            }
        }
        List<ConsumerRecord<byte[], byte[]>> records = consume(topic, pairs.length);
        for (int n = 0; n < pairs.length; n++) {
            checkEqual("key", Arrays.toString(records.get(n).key()), Arrays.toString(pairs[n][0]));
            checkEqual("value", Arrays.toString(records.get(n).value()),
                    Arrays.toString(pairs[n][1]));
        }
    }

    static void theBrokerStampsRecordsWhenTheTopicSaysSo() throws Exception {
        String topic = topic("stamped");
        create(topic, 1, "message.timestamp.type", "LogAppendTime");
        long before = System.currentTimeMillis() - 1000;
        for (String codec : List.of("none", "gzip")) {
            for (RecordMetadata answer : produce(topic, 10, "compression.type", codec)) {
                checkEqual("answered time is new", answer.timestamp() >= before, true);
            }
        }
        for (ConsumerRecord<byte[], byte[]> record : consume(topic, 20)) {
            checkEqual("type", record.timestampType(), TimestampType.LOG_APPEND_TIME);
            checkEqual("time is new", record.timestamp() >= before, true);
        }
    }

    static void aRecordLargerThanTheTopicTakesIsRefused() throws Exception {
        String topic = topic("large");
        create(topic, 1, "max.message.bytes", "10000");
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            wait(producer.send(new ProducerRecord<>(topic, 0, null, new byte[1000])));
            checkRefused(producer.send(new ProducerRecord<>(topic, 0, null, new byte[20_000])),
                    RecordTooLargeException.class);
            wait(producer.send(new ProducerRecord<>(topic, 0, null, new byte[2000])));
        }
        checkEqual("what is there", consume(topic, 2).get(1).value().length, 2000);
    }

    static void recordsBeforeAnOffsetAreDeleted() throws Exception {
        String topic = topic("deleted");
        create(topic, 1);
        produce(topic, COUNT);
        TopicPartition partition = first(topic);
        try (Admin admin = admin()) {
            Map<TopicPartition, RecordsToDelete> before =
                    Map.of(partition, RecordsToDelete.beforeOffset(60));
            checkEqual("new start",
                    wait(admin.deleteRecords(before).lowWatermarks().get(partition)).lowWatermark(),
                    60L);
            Map<TopicPartition, RecordsToDelete> beyond =
                    Map.of(partition, RecordsToDelete.beforeOffset(COUNT + 1));
            checkRefused(admin.deleteRecords(beyond).all(), OffsetOutOfRangeException.class);
        }
        try (KafkaConsumer<byte[], byte[]> consumer =
                consumerAt(topic, 0, "auto.offset.reset", "earliest")) {
            checkEqual("start", consumer.beginningOffsets(List.of(partition)).get(partition), 60L);
            checkEqual("first", poll(consumer, 40).get(0).offset(), 60L);
        }
    }

    static void topicsAreListedDescribedGrownAndDeleted() throws Exception {
        String topic = topic("grown");
        create(topic, 2);
        try (Admin admin = admin()) {
            checkBecomes("listed", () -> wait(admin.listTopics().names()).contains(topic), true);
            checkBecomes("partitions", () -> describe(admin, topic).partitions().size(), 2);
            TopicDescription described = describe(admin, topic);
            checkEqual("internal", described.isInternal(), false);
            checkEqual("has an id", described.topicId().toString().length(), 22);
            checkEqual("leader", described.partitions().get(0).leader().port(),
                    Integer.parseInt(bootstrap.substring(bootstrap.lastIndexOf(':') + 1)));
            wait(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all());
            checkBecomes("grown", () -> describe(admin, topic).partitions().size(), 5);
            checkRefused(
                    admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all(),
                    InvalidPartitionsException.class);
            wait(admin.deleteTopics(List.of(topic)).all());
            checkBecomes("deleted", () -> wait(admin.listTopics().names()).contains(topic), false);
            checkRefused(admin.describeTopics(List.of(topic)).allTopicNames(),
                    UnknownTopicOrPartitionException.class);
            checkRefused(admin.deleteTopics(List.of(topic)).all(),
                    UnknownTopicOrPartitionException.class);
        }
    }

    static TopicDescription describe(Admin admin, String topic) throws Exception {
        return wait(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic);
    }

    static void whatCannotBeCreatedIsRefusedWithItsOwnError() throws Exception {
        String topic = topic("twice");
        create(topic, 1);
        short one = 1;
        try (Admin admin = admin()) {
            checkRefused(admin.createTopics(List.of(new NewTopic(topic, 1, one))).all(),
                    TopicExistsException.class);
            checkRefused(admin.createTopics(List.of(new NewTopic("with spaces", 1, one))).all(),
                    InvalidTopicException.class);
            checkRefused(admin.createTopics(List.of(new NewTopic(topic("none"), 0, one))).all(),
                    InvalidPartitionsException.class);
            checkRefused(
                    admin.createTopics(List.of(new NewTopic(topic("three"), 1, (short) 3))).all(),
                    InvalidReplicationFactorException.class);
            NewTopic soon = new NewTopic(topic("config"), 1, one)
                    .configs(Map.of("retention.ms", "soon"));
            checkRefused(admin.createTopics(List.of(soon)).all(),
                    InvalidConfigurationException.class);
        }
    }

    static void aTopicWithoutCountsGetsTheBrokersDefaults() throws Exception {
        String topic = topic("defaults");
        try (Admin admin = admin()) {
            NewTopic asked = new NewTopic(topic, Optional.empty(), Optional.empty());
            int told = wait(admin.createTopics(List.of(asked)).numPartitions(topic));
            checkEqual("has partitions", told >= 1, true);
            checkBecomes("as told", () -> describe(admin, topic).partitions().size(), told);
        }
    }

    static void configsAreDescribedAndAltered() throws Exception {
        String topic = topic("configs");
        create(topic, 1, "retention.ms", "3600000");
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = admin()) {
            checkBecomes("as created", () -> config(admin, resource, "retention.ms").value(),
                    "3600000");
            checkEqual("source", config(admin, resource, "retention.ms").source(),
                    ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
            checkEqual("default", config(admin, resource, "cleanup.policy").isDefault(), true);
            alter(admin, resource, "retention.ms", "7200000", AlterConfigOp.OpType.SET);
            checkBecomes("altered", () -> config(admin, resource, "retention.ms").value(),
                    "7200000");
            alter(admin, resource, "retention.ms", null, AlterConfigOp.OpType.DELETE);
            checkBecomes("reset", () -> config(admin, resource, "retention.ms").isDefault(), true);
        }
    }

    static void alter(Admin admin, ConfigResource resource, String name, String value,
            AlterConfigOp.OpType how) throws Exception {
        Collection<AlterConfigOp> ops =
                List.of(new AlterConfigOp(new ConfigEntry(name, value), how));
        wait(admin.incrementalAlterConfigs(Map.of(resource, ops)).all());
    }

    static ConfigEntry config(Admin admin, ConfigResource resource, String name)
            throws Exception {
        Config config = wait(admin.describeConfigs(List.of(resource)).all()).get(resource);
        return config.get(name);
    }

    static void theClusterIsDescribed() throws Exception {
        try (Admin admin = admin()) {
            DescribeClusterResult cluster = admin.describeCluster();
            checkEqual("nodes", wait(cluster.nodes()).size(), 1);
            checkEqual("the controller is a broker",
                    wait(cluster.nodes()).contains(wait(cluster.controller())), true);
            checkEqual("has an id", wait(cluster.clusterId()).isEmpty(), false);
            String id = Integer.toString(wait(cluster.controller()).id());
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, id);
            Config config = wait(admin.describeConfigs(Set.of(broker)).all()).get(broker);
            checkEqual("broker config", config.entries().isEmpty(), false);
        }
    }

    static void theAdminClientListsOffsets() throws Exception {
        String topic = topic("offsets");
        create(topic, 1);
        produce(topic, COUNT, "compression.type", "lz4");
        TopicPartition partition = first(topic);
        Map<OffsetSpec, Long> cases = new LinkedHashMap<>();
        cases.put(OffsetSpec.earliest(), 0L);
        cases.put(OffsetSpec.latest(), 100L);
        cases.put(OffsetSpec.forTimestamp(timestampMs(7)), 7L);
        cases.put(OffsetSpec.maxTimestamp(), 99L);
        try (Admin admin = admin()) {
            for (Map.Entry<OffsetSpec, Long> entry : cases.entrySet()) {
                ListOffsetsResult result = admin.listOffsets(Map.of(partition, entry.getKey()));
                checkEqual(entry.getKey().getClass().getSimpleName(),
                        wait(result.partitionResult(partition)).offset(), entry.getValue());
            }
        }
    }

    // --- telling the test

    static void report(String step, String outcome, String detail) {
        StringBuilder line = new StringBuilder();
        line.append("{\"step\": \"").append(step).append("\", \"outcome\": \"").append(outcome);
        line.append("\", \"detail\": \"");
        for (char c : detail.toCharArray()) {
            if (c == '"' || c == '\\') {
                line.append('\\').append(c);
            } else if (c < ' ' || c > '~') {
                line.append(String.format("\\u%04x", (int) c));
            } else {
                line.append(c);
            }
        }
        System.out.println(line.append("\"}"));
    }

    public static void main(String[] words) {
        bootstrap = words[0];
        prefix = words[1];
        ours = words[2];
        List<String> wanted = Arrays.asList(words).subList(3, words.length);
        Map<String, Step> steps = new LinkedHashMap<>();
        steps.put("every_codec_comes_back_as_sent",
                KafkaClientsSteps::everyCodecComesBackAsSent);
        steps.put("every_codec_comes_back_from_a_producer_without_idempotence",
                KafkaClientsSteps::everyCodecComesBackFromAProducerWithoutIdempotence);
        steps.put("reads_what_our_client_wrote",
                KafkaClientsSteps::readsWhatOurClientWrote);
        steps.put("every_kind_of_acks_delivers",
                KafkaClientsSteps::everyKindOfAcksDelivers);
        steps.put("a_topic_is_made_on_first_use",
                KafkaClientsSteps::aTopicIsMadeOnFirstUse);
        steps.put("many_batches_of_one_idempotent_producer_keep_their_order",
                KafkaClientsSteps::manyBatchesOfOneIdempotentProducerKeepTheirOrder);
        steps.put("an_offset_is_found_by_time_to_the_exact_record",
                KafkaClientsSteps::anOffsetIsFoundByTimeToTheExactRecord);
        steps.put("seeks_to_an_offset_the_start_and_the_end",
                KafkaClientsSteps::seeksToAnOffsetTheStartAndTheEnd);
        steps.put("an_offset_out_of_range_is_said_or_falls_back_to_the_reset_policy",
                KafkaClientsSteps::anOffsetOutOfRangeIsSaidOrFallsBackToTheResetPolicy);
        steps.put("a_consumer_that_waits_at_the_end_is_woken",
                KafkaClientsSteps::aConsumerThatWaitsAtTheEndIsWoken);
        steps.put("null_and_empty_keys_and_values_are_told_apart",
                KafkaClientsSteps::nullAndEmptyKeysAndValuesAreToldApart);
        steps.put("the_broker_stamps_records_when_the_topic_says_so",
                KafkaClientsSteps::theBrokerStampsRecordsWhenTheTopicSaysSo);
        steps.put("a_record_larger_than_the_topic_takes_is_refused",
                KafkaClientsSteps::aRecordLargerThanTheTopicTakesIsRefused);
        steps.put("records_before_an_offset_are_deleted",
                KafkaClientsSteps::recordsBeforeAnOffsetAreDeleted);
        steps.put("topics_are_listed_described_grown_and_deleted",
                KafkaClientsSteps::topicsAreListedDescribedGrownAndDeleted);
        steps.put("what_cannot_be_created_is_refused_with_its_own_error",
                KafkaClientsSteps::whatCannotBeCreatedIsRefusedWithItsOwnError);
        steps.put("a_topic_without_counts_gets_the_brokers_defaults",
                KafkaClientsSteps::aTopicWithoutCountsGetsTheBrokersDefaults);
        steps.put("configs_are_described_and_altered",
                KafkaClientsSteps::configsAreDescribedAndAltered);
        steps.put("the_cluster_is_described",
                KafkaClientsSteps::theClusterIsDescribed);
        steps.put("the_admin_client_lists_offsets",
                KafkaClientsSteps::theAdminClientListsOffsets);
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
