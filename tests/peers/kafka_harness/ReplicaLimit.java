package kafka.server;

import java.util.List;
import java.util.Map;

/** What is done to a topic that a test makes, so that one daemon can have it. */
public final class ReplicaLimit {
    private ReplicaLimit() { }

    /** As many brokers as the test believes there are. */
    public static volatile int brokers = 1;

    /** What the test has set for all topics, on its brokers: here it is set on each topic. */
    public static volatile Map<String, String> defaults = Map.of();

    /** One replica where the test's brokers could hold so many; anything else as it is. */
    public static short replicas(short wanted) {
        return wanted > 1 && wanted <= brokers ? 1 : wanted;
    }

    /** The only broker, where those named are all of the test's, each once. */
    public static List<Integer> replicas(List<Integer> wanted) {
        boolean isOne = wanted.stream().distinct().count() == wanted.size() && !wanted.isEmpty()
            && wanted.stream().allMatch(id -> id >= 0 && id < brokers);
        return isOne ? List.of(0) : wanted;
    }

    /** No more replicas in sync than there are. */
    public static String setting(String name, String value) {
        boolean isOfReplicas = name.equals("min.insync.replicas") && value != null && value.matches("[1-9]");
        return isOfReplicas && Integer.parseInt(value) <= brokers ? "1" : value;
    }
}
