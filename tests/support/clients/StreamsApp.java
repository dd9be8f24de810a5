import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * One instance of an application of Kafka Streams; ends when a line comes.
 *
 * <p>Arguments: bootstrap address, application id, what it does (words, windows, tables), state
 * directory, then key=value settings. Topics are named after the application id. Prints
 * "state NEW" whenever its state changes, "closed" at the end.
 */
public class StreamsApp {
    /** words: text lines in, how often each word came, out; by a repartition topic and a changelog. */
    static void words(StreamsBuilder builder, String app) {
        builder.<String, String>stream(app + "-in")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.as("words"))
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(app + "-out");
    }

    /** windows: how many records of a key fall into each ten seconds of event time. */
    static void windows(StreamsBuilder builder, String app) {
        builder.<String, String>stream(app + "-in")
            .groupByKey()
            .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofSeconds(10)))
            .count(Materialized.as("windows"))
            .toStream()
            .map((key, count) ->
                KeyValue.pair(key.key() + "@" + key.window().start(), Long.toString(count)))
            .to(app + "-out");
    }

    /** tables: two tables by the same key, and that one against a third by a key in its value. */
    static void tables(StreamsBuilder builder, String app) {
        KTable<String, String> left = builder.table(app + "-left");
        KTable<String, String> right = builder.table(app + "-right");
        KTable<String, String> colours = builder.table(app + "-colours");
        left.join(right, (one, other) -> one + "+" + other, Materialized.as("joined"))
            .toStream()
            .to(app + "-out");
        left.join(colours, value -> value, (value, colour) -> value + "=" + colour)
            .toStream()
            .to(app + "-coloured");
    }

    public static void main(String[] arguments) throws Exception {
        String app = arguments[1];
        Properties conf = new Properties();
        conf.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        conf.put(StreamsConfig.APPLICATION_ID_CONFIG, app);
        conf.put(StreamsConfig.STATE_DIR_CONFIG, arguments[3]);
        conf.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        conf.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        conf.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        for (int i = 4; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            conf.put(pair[0], pair[1]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        switch (arguments[2]) {
            case "words" -> words(builder, app);
            case "windows" -> windows(builder, app);
            default -> tables(builder, app);
        }
        Topology topology = builder.build(conf);
        KafkaStreams streams = new KafkaStreams(topology, conf);
        streams.setStateListener((fresh, old) -> System.out.println("state " + fresh));
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler
                .StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        System.in.read();
        boolean ended = streams.close(Duration.ofSeconds(60));
        System.out.println(ended ? "closed" : "not closed within 60 s");
        System.exit(ended ? 0 : 1);
    }
}
