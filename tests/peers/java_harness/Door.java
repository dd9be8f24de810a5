package segbroker;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The process that starts and ends daemons: a line of JSON for another. */
public final class Door {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Door() { }

    /** Throws IOException with what it says when it cannot be done. */
    public static JsonNode ask(Map<String, ?> what) throws IOException {
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), Integer.getInteger("segbroker.door"))) {
            socket.getOutputStream().write((JSON.writeValueAsString(what) + "\n").getBytes(StandardCharsets.UTF_8));
            try (InputStream answer = socket.getInputStream()) {
                JsonNode said = JSON.readTree(answer.readAllBytes());
                if (said.has("error")) {
                    throw new IOException(said.get("error").asText());
                }
                return said;
            }
        }
    }

    /**
     * A daemon with one listener, for the class that is played.
     *
     * properties: of the broker, by Kafka's names; listener, protocol: its name, and what protects it.
     */
    public static JsonNode start(Map<?, ?> properties, String listener, String protocol) throws IOException {
        Map<String, String> settings = new HashMap<>();
        properties.forEach((key, value) -> settings.put(key.toString(), text(value)));
        Map<String, Object> broker = new HashMap<>();
        broker.put("node", 0);
        broker.put("properties", settings);
        broker.put("listeners", List.of(Map.of("name", listener, "protocol", protocol)));
        if (protocol.endsWith("SSL")) {
            broker.put("pem", PemFile.of(properties).toString());
        }
        return ask(Map.of("do", "start", "test", System.getProperty("segbroker.test"), "broker", broker));
    }

    private static String text(Object value) {
        return value instanceof List ? String.join(",", (List<String>) value) : value.toString();
    }
}
