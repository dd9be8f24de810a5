package org.apache.kafka.common.test;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaApis;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaLimit;
import kafka.server.SharedServer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.internals.Topic;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.coordinator.group.Group;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.common.GroupVersion;
import org.apache.kafka.server.common.ShareVersion;
import org.apache.kafka.server.common.StreamsVersion;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;
import scala.Option;
import segbroker.Door;

/**
 * In the place of Kafka's class of this name: the cluster of a test.  One daemon is any number of
 * brokers; a topic gets one replica (see ReplicaLimit).
 *
 * What is asked of a broker here is whether it runs, to end and to start, its port and settings, and
 * which topics there are, by which ids.  Anything else is refused.
 *
 * The last assertion of 63 tests is that Kafka has written more than two records about share groups
 * to a topic of its own.  The broker under test keeps these elsewhere and has no such topic: here one
 * is made for their class, with three empty records in it, so that they come to their end.  That assertion
 * then says nothing, and the tests are not counted as passed (kafka-shares.in_part).
 */
public class KafkaClusterTestKit implements AutoCloseable {
    private static final String LISTENER = "EXTERNAL";
    /** What a test switches a group protocol off by, where it is not by the setting. */
    private static final Map<String, String> FEATURES = Map.of(
        GroupVersion.FEATURE_NAME, "consumer",
        ShareVersion.FEATURE_NAME, "share",
        StreamsVersion.FEATURE_NAME, "streams");

    private final Map<String, Object> properties;
    private final Map<Integer, BrokerServer> brokers = new TreeMap<>();
    private final MockFaultHandler faults = new MockFaultHandler("none");
    private final KRaftMetadataCache metadata = Mockito.mock(KRaftMetadataCache.class, this::known);
    private final KafkaApis requests = Mockito.mock(KafkaApis.class, this::served);
    private final SocketServer socket = Mockito.mock(SocketServer.class, this::bound);
    private final GroupCoordinator coordinator =
        Mockito.mock(GroupCoordinator.class, KafkaClusterTestKit::coordinated);
    private final ControllerServer controller = Mockito.mock(ControllerServer.class, this::controlled);
    private final SecurityProtocol protocol;
    private final KafkaConfig config;
    private final Map<String, Object> client = new HashMap<>();
    private String daemon;
    private int port;
    private boolean isUp;

    private KafkaClusterTestKit(TestKitNodes nodes, Map<String, Object> properties) {
        this.properties = new HashMap<>(properties);
        // Kafka's default; where it is not set, ours is another.
        this.properties.putIfAbsent("num.partitions", "1");
        protocol = nodes.brokerListenerProtocol();
        if (protocol == SecurityProtocol.SASL_PLAINTEXT) {
            this.properties.putIfAbsent("sasl.enabled.mechanisms", "PLAIN");
            this.properties.putIfAbsent("authorizer.class.name", StandardAuthorizer.class.getName());
            this.properties.putIfAbsent("super.users", "User:" + JaasUtils.KAFKA_PLAIN_ADMIN);
        }
        nodes.brokerNodes().forEach((id, node) -> {
            this.properties.putAll(node.propertyOverrides());
            brokers.put(id, Mockito.mock(BrokerServer.class, this::answer));
        });
        List<String> protocols = new ArrayList<>(List.of("classic"));
        FEATURES.forEach((feature, protocol) -> {
            if (nodes.bootstrapMetadata().featureLevel(feature) > 0) {
                protocols.add(protocol);
            }
        });
        if (protocols.size() <= FEATURES.size()) {
            this.properties.put("group.coordinator.rebalance.protocols", String.join(",", protocols));
        }
        config = settings();
        ReplicaLimit.brokers = brokers.size();
        ReplicaLimit.defaults = topicDefaults();
    }

    /** By the nodes that are asked for it is known which brokers there are. */
    public static class Builder {
        private final TestKitNodes nodes;
        private final Map<String, Object> properties = new HashMap<>();

        public Builder(TestKitNodes nodes) {
            this.nodes = nodes;
        }

        public Builder setConfigProp(String key, Object value) {
            properties.put(key, value);
            return this;
        }

        public Builder setStandalone(boolean isStandalone) {
            return this;
        }

        public KafkaClusterTestKit build() {
            return new KafkaClusterTestKit(nodes, properties);
        }
    }

    public void format() { }

    public void startup() throws ExecutionException, InterruptedException {
        try {
            JsonNode said = Door.start(properties, LISTENER, protocol.name);
            daemon = said.get("handle").asText();
            port = said.get("ports").get(LISTENER).asInt();
            said.get("client").fields().forEachRemaining(one -> client.put(one.getKey(), one.getValue().asText()));
            isUp = true;
        } catch (IOException error) {
            throw new ExecutionException(error);
        }
        if (protocol == SecurityProtocol.SASL_PLAINTEXT) {
            addUser(JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD);
            addUser(JaasUtils.KAFKA_PLAIN_USER1, JaasUtils.KAFKA_PLAIN_USER1_PASSWORD);
        }
        if (Boolean.getBoolean("segbroker.share.state")) {
            fill(Topic.SHARE_GROUP_STATE_TOPIC_NAME);
        }
    }

    private void fill(String topic) throws ExecutionException, InterruptedException {
        try (Admin admin = Admin.create(client)) {
            admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1))).all().get();
        }
        try (Producer<byte[], byte[]> producer =
                new KafkaProducer<>(client, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int n = 0; n < 3; n++) {
                producer.send(new ProducerRecord<>(topic, n, null, new byte[0])).get();
            }
        }
    }

    /** Who logs in by PLAIN, with what Kafka's own set-up code gives its brokers. */
    private void addUser(String name, String password) throws ExecutionException, InterruptedException {
        ScramCredentialInfo info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
        try (Admin admin = Admin.create(client)) {
            admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(name, info, password))).all().get();
        }
    }

    public void waitForReadyBrokers() { }

    public String bootstrapServers() {
        return "localhost:" + port;
    }

    public String bootstrapControllers() {
        throw new UnsupportedOperationException("there is no controller beside the broker");
    }

    public Map<Integer, BrokerServer> brokers() {
        return brokers;
    }

    public Map<Integer, ControllerServer> controllers() {
        return Map.of(3000, controller);
    }

    public MockFaultHandler fatalFaultHandler() {
        return faults;
    }

    public MockFaultHandler nonFatalFaultHandler() {
        return faults;
    }

    @Override
    public void close() throws Exception {
        if (daemon != null) {
            Door.ask(Map.of("do", "end", "handle", daemon));
        }
    }

    private Object answer(InvocationOnMock asked) throws IOException {
        switch (asked.getMethod().getName()) {
            case "brokerState":
                return isUp ? BrokerState.RUNNING : BrokerState.NOT_RUNNING;
            case "startup":
                turn("again", true);
                return null;
            case "shutdown":
                turn("stop", false);
                return null;
            case "awaitShutdown":
                return null;
            case "isShutdown":
                return !isUp;
            case "config":
                return config;
            case "sharedServer":
                return Mockito.mock(SharedServer.class, Mockito.RETURNS_DEEP_STUBS);
            case "groupCoordinator":
                return coordinator;
            case "dataPlaneRequestProcessor":
                return requests;
            case "authorizerPlugin":
                return Option.empty();
            case "boundPort":
                return port;
            case "metadataCache":
                return metadata;
            case "socketServer":
                return socket;
            default:
                return plain(asked);
        }
    }

    private KafkaConfig settings() {
        Map<String, Object> all = new HashMap<>(Map.of(
            "process.roles", "broker",
            "node.id", "0",
            "controller.quorum.voters", "3000@localhost:9093",
            "controller.listener.names", "CONTROLLER",
            "listeners", LISTENER + "://localhost:0",
            "inter.broker.listener.name", LISTENER,
            "listener.security.protocol.map", LISTENER + ":PLAINTEXT,CONTROLLER:PLAINTEXT"));
        properties.forEach(all::put);
        return new KafkaConfig(all);
    }

    /** Kafka's defaults of topics, where the test has set them. */
    private Map<String, String> topicDefaults() {
        Map<String, String> wanted = new HashMap<>();
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((name, synonyms) -> synonyms.stream()
            .filter(one -> properties.containsKey(one.name()))
            .findFirst()
            .ifPresent(one -> wanted.put(name, one.converter().apply(properties.get(one.name()).toString()))));
        return wanted;
    }

    private Object controlled(InvocationOnMock asked) {
        switch (asked.getMethod().getName()) {
            case "authorizerPlugin":
                return Option.empty();
            case "controller":
                return Mockito.mock(Controller.class, this::controlled);
            case "findAllTopicIds":
                return CompletableFuture.completedFuture(topicIds());
            case "raftManager":
                return Mockito.mock(KafkaRaftManager.class, Mockito.RETURNS_DEEP_STUBS);
            default:
                return plain(asked);
        }
    }

    private Map<String, Uuid> topicIds() {
        Map<String, Uuid> found = new HashMap<>();
        try (Admin admin = Admin.create(client)) {
            admin.listTopics().listings().get().forEach(one -> found.put(one.name(), one.topicId()));
        } catch (ExecutionException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
        return found;
    }

    private static Object coordinated(InvocationOnMock asked) {
        return asked.getMethod().getName().equals("groupMetadataTopicConfigs") ? new Properties() : plain(asked);
    }

    private Object served(InvocationOnMock asked) {
        return asked.getMethod().getName().equals("isConsumerGroupProtocolEnabled")
            ? config.groupCoordinatorRebalanceProtocols().contains(Group.GroupType.CONSUMER) : plain(asked);
    }

    private Object bound(InvocationOnMock asked) {
        return asked.getMethod().getName().equals("boundPort") ? port : plain(asked);
    }

    private Object known(InvocationOnMock asked) throws ExecutionException, InterruptedException {
        switch (asked.getMethod().getName()) {
            case "getLeaderAndIsr":
                return Optional.of(new LeaderAndIsr(0, List.of(0)));
            case "getAliveBrokerNodes":
                return List.of(new Node(0, "localhost", port));
            case "numPartitions":
                String topic = asked.getArgument(0);
                try (Admin admin = Admin.create(client)) {
                    return Optional.of(
                        admin.describeTopics(List.of(topic)).topicNameValues().get(topic).get().partitions().size());
                } catch (ExecutionException error) {
                    if (error.getCause() instanceof UnknownTopicOrPartitionException) {
                        return Optional.empty();
                    }
                    throw error;
                }
            default:
                return plain(asked);
        }
    }

    private static Object plain(InvocationOnMock asked) {
        switch (asked.getMethod().getName()) {
            case "hashCode":
                return System.identityHashCode(asked.getMock());
            case "equals":
                return asked.getMock() == asked.getArgument(0);
            default:
                throw new UnsupportedOperationException("a look into the broker: " + asked.getMethod());
        }
    }

    /** All of the test's brokers end or start beside each other: the first one does it. */
    private synchronized void turn(String what, boolean isUpThen) throws IOException {
        if (isUp != isUpThen) {
            Door.ask(Map.of("do", what, "handle", daemon));
            isUp = isUpThen;
        }
    }
}
