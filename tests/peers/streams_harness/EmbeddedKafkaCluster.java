package org.apache.kafka.streams.integration.utils;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.server.util.MockTime;
import org.apache.kafka.test.TestUtils;
import segbroker.Door;

/**
 * The cluster of Kafka Streams' integration tests: one daemon, whatever the number of brokers.
 *
 * It stands before the class of this name in the tests' jar and has its public methods. Where a
 * test's topics have more than one replica they get one. The tests may know the two topics in
 * which Kafka keeps its own state: whether they are there is not looked at.
 *
 * Kafka's brokers have the clock of the tests here, which stands still until a test moves it: they
 * delete nothing by age. The daemon, whose clock is the real one, does not look during a test.
 */
public class EmbeddedKafkaCluster {
    private static final long WAIT_MS = 30_000L;
    private static final Set<String> KAFKAS_OWN = Set.of("__consumer_offsets", "__transaction_state");
    /** Kafka's number for never is none of ours; 24 days are enough. */
    private static final String IDLE = "connections.max.idle.ms";
    /** What Kafka's class sets unless the test does, as far as a daemon knows it. */
    private static final Map<String, Object> UNLESS_SET = Map.of(
        "auto.create.topics.enable", true,
        "group.initial.rebalance.delay.ms", 0,
        "group.min.session.timeout.ms", 1,
        "log.retention.check.interval.ms", 86_400_000,
        "num.partitions", 1
    );

    private final Properties brokerConfig;
    private final List<Properties> brokerConfigOverrides;
    private String daemon;
    private String address;
    private Admin admin;

    public final MockTime time;

    public EmbeddedKafkaCluster(int numBrokers) {
        this(numBrokers, new Properties());
    }

    public EmbeddedKafkaCluster(int numBrokers, Properties brokerConfig) {
        this(numBrokers, brokerConfig, System.currentTimeMillis());
    }

    public EmbeddedKafkaCluster(int numBrokers, Properties brokerConfig, long mockTimeMillisStart) {
        this(numBrokers, brokerConfig, List.of(), mockTimeMillisStart);
    }

    public EmbeddedKafkaCluster(int numBrokers, Properties brokerConfig, List<Properties> brokerConfigOverrides) {
        this(numBrokers, brokerConfig, brokerConfigOverrides, System.currentTimeMillis());
    }

    public EmbeddedKafkaCluster(
        int numBrokers, Properties brokerConfig, List<Properties> brokerConfigOverrides, long mockTimeMillisStart
    ) {
        this(numBrokers, brokerConfig, brokerConfigOverrides, mockTimeMillisStart, System.nanoTime());
    }

    public EmbeddedKafkaCluster(
        int numBrokers,
        Properties brokerConfig,
        List<Properties> brokerConfigOverrides,
        long mockTimeMillisStart,
        long mockTimeNanoStart
    ) {
        this.brokerConfig = brokerConfig;
        this.brokerConfigOverrides = brokerConfigOverrides;
        time = new MockTime(mockTimeMillisStart, mockTimeNanoStart);
    }

    public void start() throws IOException {
        Map<String, Object> properties = new HashMap<>(UNLESS_SET);
        brokerConfig.forEach((key, value) -> properties.put(key.toString(), value));
        if (!brokerConfigOverrides.isEmpty()) {
            brokerConfigOverrides.get(0).forEach((key, value) -> properties.put(key.toString(), value));
        }
        properties.computeIfPresent(IDLE, (key, value) -> value.toString().equals("-1") ? "" + Integer.MAX_VALUE : value);
        String listener = properties.getOrDefault("listeners", "PLAINTEXT://localhost:0").toString().split(":")[0];
        JsonNode said = Door.start(properties, listener, listener);
        daemon = said.get("handle").asText();
        address = "localhost:" + said.get("ports").get(listener).asText();
        admin = Admin.create(Map.of("bootstrap.servers", said.get("client").get("bootstrap.servers").asText()));
    }

    public void stop() {
        admin.close();
        try {
            Door.ask(Map.of("do", "end", "handle", daemon));
        } catch (IOException e) {
            throw new RuntimeException(e);
        }
    }

    public String zKConnectString() {
        throw new UnsupportedOperationException("there is no ZooKeeper");
    }

    public String bootstrapServers() {
        return address;
    }

    public void createTopics(String... topics) throws InterruptedException {
        for (String topic : topics) {
            createTopic(topic);
        }
    }

    public void createTopic(String topic) throws InterruptedException {
        createTopic(topic, 1, 1, Map.of());
    }

    public void createTopic(String topic, int partitions, int replication) throws InterruptedException {
        createTopic(topic, partitions, replication, Map.of());
    }

    public void createTopic(String topic, int partitions, int replication, Map<String, String> topicConfig)
        throws InterruptedException {
        NewTopic wanted = new NewTopic(topic, partitions, (short) 1).configs(topicConfig);
        try {
            admin.createTopics(List.of(wanted)).all().get();
        } catch (ExecutionException e) {
            throw new RuntimeException(e);
        }
    }

    public void deleteTopic(String topic) throws InterruptedException {
        deleteTopicsAndWait(-1L, topic);
    }

    public void deleteTopicAndWait(String topic) throws InterruptedException {
        deleteTopicsAndWait(WAIT_MS, topic);
    }

    public void deleteTopics(String... topics) throws InterruptedException {
        deleteTopicsAndWait(-1L, topics);
    }

    public void deleteTopicsAndWait(String... topics) throws InterruptedException {
        deleteTopicsAndWait(WAIT_MS, topics);
    }

    public void deleteTopicsAndWait(long timeoutMs, String... topics) throws InterruptedException {
        for (String topic : topics) {
            try {
                admin.deleteTopics(List.of(topic)).all().get();
            } catch (ExecutionException e) {
                if (!(e.getCause() instanceof UnknownTopicOrPartitionException)) {
                    throw new RuntimeException(e);
                }
            }
        }
        if (timeoutMs > 0) {
            List<String> gone = Arrays.asList(topics);
            TestUtils.waitForCondition(
                () -> gone.stream().noneMatch(getAllTopicsInCluster()::contains), timeoutMs, "deleted topics are there");
        }
    }

    public void deleteAllTopicsAndWait(long timeoutMs) throws InterruptedException {
        deleteTopicsAndWait(timeoutMs, getAllTopicsInCluster().toArray(new String[0]));
        forgetGroups();
    }

    /** In Kafka they are in one of the topics that have been deleted. Members may leave meanwhile by themselves. */
    private void forgetGroups() throws InterruptedException {
        TestUtils.waitForCondition(
            () -> {
                for (ConsumerGroupListing group : admin.listConsumerGroups().all().get()) {
                    forget(group.groupId());
                }
                return admin.listConsumerGroups().all().get().isEmpty();
            },
            WAIT_MS,
            "there are still groups");
    }

    private void forget(String group) throws ExecutionException, InterruptedException {
        List<String> one = List.of(group);
        if (!admin.describeConsumerGroups(one).all().get().get(group).members().isEmpty()) {
            admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions()).all().get();
        }
        admin.deleteConsumerGroups(one).all().get();
    }

    public void waitForRemainingTopics(long timeoutMs, String... topics) throws InterruptedException {
        Set<String> remaining = new HashSet<>(Arrays.asList(topics));
        remaining.removeAll(KAFKAS_OWN);
        TestUtils.waitForCondition(
            () -> getAllTopicsInCluster().equals(remaining), timeoutMs, () -> "there are " + getAllTopicsInCluster());
    }

    public Properties getLogConfig(String topic) {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try {
            Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            Properties found = new Properties();
            for (ConfigEntry entry : config.entries()) {
                if (entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) {
                    found.put(entry.name(), entry.value());
                }
            }
            return found;
        } catch (ExecutionException | InterruptedException e) {
            throw new RuntimeException(e);
        }
    }

    public Set<String> getAllTopicsInCluster() {
        try {
            return new HashSet<>(admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get());
        } catch (ExecutionException | InterruptedException e) {
            throw new RuntimeException(e);
        }
    }
}
