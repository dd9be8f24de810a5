package segbroker.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;

/**
 * What one task reads and how it reaches the brokers; the other side is spark/jvm.py.
 *
 * <p>Options arrive checked. Times are in milliseconds, sizes in bytes. `topicId`: of the topic that was
 * planned; null where the broker has none.
 */
public record ScanTask(
        String topic,
        UUID topicId,
        int partition,
        long start,
        long end,
        Address leader,
        boolean failOnDataLoss,
        boolean readCommitted,
        int fetchBytes,
        int pollTimeoutMs,
        Client client) {

    record Address(String host, int port) {
        @Override
        public String toString() {
            return host + ":" + port;
        }
    }

    /** How to reach the brokers; security null: PLAINTEXT. `triesMax` 0: until the time-out. */
    record Client(
            List<Address> bootstrap,
            String clientId,
            int requestTimeoutMs,
            int apiTimeoutMs,
            int triesMax,
            int retryBackoffMs,
            Security security) {}

    /** `mechanism` null: no login. `caFile` null: nothing is verified. */
    record Security(
            boolean tls,
            String caFile,
            boolean verifyHost,
            String mechanism,
            String user,
            String password) {
        @Override
        public String toString() {
            return "Security(tls=" + tls + ", mechanism=" + mechanism + ", user=" + user + ")";
        }
    }

    static ScanTask parse(String json) {
        JsonNode task;
        try {
            task = new ObjectMapper().readTree(json);
        } catch (IOException exc) {
            throw new IllegalStateException("a task that is no JSON", exc);
        }
        JsonNode client = task.get("client");
        List<Address> bootstrap = new ArrayList<>();
        client.get("bootstrap").forEach(each -> bootstrap.add(address(each)));
        return new ScanTask(
                task.get("topic").asText(),
                task.path("topic_id").isTextual() ? UUID.fromString(task.get("topic_id").asText()) : null,
                task.get("partition").asInt(),
                task.get("start").asLong(),
                task.get("end").asLong(),
                address(task.get("leader")),
                task.get("fail_on_data_loss").asBoolean(),
                task.get("read_committed").asBoolean(),
                task.get("fetch_bytes").asInt(),
                bounded(task.get("poll_timeout_ms")),
                new Client(
                        bootstrap,
                        client.get("client_id").asText(),
                        bounded(client.get("request_timeout_ms")),
                        bounded(client.get("api_timeout_ms")),
                        bounded(client.get("tries_count_max")),
                        bounded(client.get("retry_backoff_ms")),
                        security(client.get("security"))));
    }

    private static Address address(JsonNode pair) {
        return new Address(pair.get(0).asText(), pair.get(1).asInt());
    }

    private static int bounded(JsonNode number) {
        return (int) Math.min(number.asLong(), 1 << 30);
    }

    private static Security security(JsonNode node) {
        if (node.isNull()) {
            return null;
        }
        return new Security(
                node.get("tls").asBoolean(),
                node.get("ca_file").asText(null),
                node.get("verify_host").asBoolean(),
                node.get("mechanism").asText(null),
                node.get("user").asText(null),
                node.get("password").asText(null));
    }
}
