package kafka.testkit;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import kafka.server.BrokerServer;
import kafka.server.ReplicaLimit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialAlteration;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.fault.MockFaultHandler;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;
import segbroker.Door;

/**
 * In the place of Kafka's class of this name: the cluster below `EmbeddedKafkaCluster`, which is
 * Connect's own.  One daemon is any number of brokers; a topic gets one replica (see ReplicaLimit).
 *
 * What is asked of a broker here is whether it runs, to end and to start.  Anything else is refused.
 */
public class KafkaClusterTestKit implements AutoCloseable {
    private static final String LISTENER = "EXTERNAL";

    private final Map<String, Object> properties;
    private final Map<Integer, BrokerServer> brokers = new TreeMap<>();
    private final MockFaultHandler faults = new MockFaultHandler("none");
    private String daemon;
    private String address;
    private boolean isUp;

    private KafkaClusterTestKit(int brokerCount, Map<String, Object> properties) {
        this.properties = new HashMap<>(properties);
        // Kafka's default; where it is not set, ours is another.
        this.properties.putIfAbsent("num.partitions", "1");
        for (int id = 0; id < brokerCount; id++) {
            brokers.put(id, Mockito.mock(BrokerServer.class, this::answer));
        }
        ReplicaLimit.brokers = brokerCount;
        ReplicaLimit.defaults = topicDefaults();
    }

    /** By the nodes that are asked for it is known how many brokers there are. */
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

        public KafkaClusterTestKit build() {
            return new KafkaClusterTestKit(nodes.brokerNodes().size(), properties);
        }
    }

    public void format() { }

    public void startup() throws IOException, ExecutionException, InterruptedException {
        JsonNode said = Door.start(properties, LISTENER, protocol());
        daemon = said.get("handle").asText();
        address = "localhost:" + said.get("ports").get(LISTENER).asText();
        isUp = true;
        Map<String, Object> client = new HashMap<>();
        said.get("client").fields().forEachRemaining(one -> client.put(one.getKey(), one.getValue().asText()));
        for (Map.Entry<String, String> user : users().entrySet()) {
            UserScramCredentialAlteration made = new UserScramCredentialUpsertion(
                user.getKey(), new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), user.getValue());
            try (Admin admin = Admin.create(client)) {
                admin.alterUserScramCredentials(List.of(made)).all().get();
            }
        }
    }

    public void waitForReadyBrokers() { }

    public String bootstrapServers() {
        return address;
    }

    public Map<Integer, BrokerServer> brokers() {
        return brokers;
    }

    public MockFaultHandler nonFatalFaultHandler() {
        return faults;
    }

    @Override
    public void close() throws IOException {
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

    private String protocol() {
        Object map = properties.getOrDefault("listener.security.protocol.map", "");
        for (String one : map.toString().split(",")) {
            if (one.startsWith(LISTENER + ":")) {
                return one.substring(LISTENER.length() + 1);
            }
        }
        return "PLAINTEXT";
    }

    /** Names and passwords that a login module for PLAIN lists. */
    private Map<String, String> users() {
        Map<String, String> found = new HashMap<>();
        Object module = properties.get("listener.name.external.plain.sasl.jaas.config");
        if (module != null) {
            JaasContext
                .loadServerContext(
                    new ListenerName(LISTENER), "PLAIN", Map.of("plain.sasl.jaas.config", new Password(module.toString())))
                .configurationEntries()
                .forEach(entry -> entry.getOptions().forEach((key, value) -> {
                    if (key.startsWith("user_")) {
                        found.put(key.substring("user_".length()), value.toString());
                    }
                }));
        }
        return found;
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
}
