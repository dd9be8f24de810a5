import java.util.HashMap;
import java.util.Map;
import java.util.function.Function;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/**
 * An application of Spring Cloud Stream with its binder for Kafka: a function from a topic to
 * another one, in transactions that hold the places of what was read.
 *
 * <p>The binder looks at the topics at its start and makes those that are missing. Arguments:
 * address, topic to read, topic to write. A line on its input ends it.
 */
@Configuration
@EnableAutoConfiguration
public class SpringCloudStreamApp {
    @Bean
    public Function<String, String> copy() {
        return word -> word;
    }

    public static void main(String[] args) throws Exception {
        String binder = "spring.cloud.stream.kafka.binder.";
        String in = "spring.cloud.stream.kafka.bindings.copy-in-0.consumer.";
        String out = "spring.cloud.stream.bindings.copy-out-0.";
        Map<String, Object> told = new HashMap<>();
        told.put("spring.main.banner-mode", "off");
        told.put("spring.jmx.enabled", "false");
        told.put("logging.level.root", "WARN");
        told.put("spring.cloud.function.definition", "copy");
        told.put(binder + "brokers", args[0]);
        told.put(binder + "transaction.transaction-id-prefix", "cloud-");
        told.put(binder + "required-acks", "all");
        // More partitions than the topic has: the binder adds what is missing.
        told.put(binder + "auto-add-partitions", "true");
        told.put(binder + "min-partition-count", "6");
        told.put("spring.cloud.stream.bindings.copy-in-0.destination", args[1]);
        told.put("spring.cloud.stream.bindings.copy-in-0.group", "copies");
        told.put("spring.cloud.stream.bindings.copy-in-0.consumer.concurrency", "2");
        told.put(out + "destination", args[2]);
        told.put(in + "start-offset", "earliest");
        told.put(in + "configuration.session.timeout.ms", "6000");
        told.put(in + "configuration.isolation.level", "read_committed");
        SpringApplication app = new SpringApplication(SpringCloudStreamApp.class);
        app.setDefaultProperties(told);
        var context = app.run();
        System.out.println("ready");
        System.in.read();
        context.close();
        System.exit(0);
    }
}
