import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.beans.factory.annotation.Qualifier;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.kafka.annotation.DltHandler;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.EnableKafkaRetryTopic;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.config.ShareKafkaListenerContainerFactory;
import org.springframework.kafka.config.TopicBuilder;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.DefaultShareConsumerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.core.ProducerFactory;
import org.springframework.kafka.listener.BatchListenerFailedException;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.kafka.requestreply.ReplyingKafkaTemplate;
import org.springframework.kafka.support.Acknowledgment;
import org.springframework.kafka.support.ShareAcknowledgment;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.messaging.handler.annotation.SendTo;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;
import org.springframework.util.backoff.FixedBackOff;

/**
 * An application of Spring Kafka, of the parts that it is told: Transactions, Failures, Questions,
 * Shares.
 *
 * <p>Arguments: address, partitions of each topic, parts. It prints `ready`, then a line for each
 * thing that a listener heard; a line on its input ends it.
 */
public class SpringApp {
    private static String address;
    private static int partitions;

    private static synchronized void say(String line) {
        System.out.println(line);
    }

    /** What every part has: topics that are made at the start, and a template to send with. */
    @Configuration
    @EnableKafka
    static class Common {
        @Bean
        KafkaAdmin admin() {
            KafkaAdmin admin = new KafkaAdmin(Map.of("bootstrap.servers", address));
            admin.setFatalIfBrokerNotAvailable(true);
            admin.setModifyTopicConfigs(true);
            // A test may run on a machine with much else to do.
            admin.setOperationTimeout(240);
            return admin;
        }

        @Bean
        KafkaAdmin.NewTopics topics() {
            return new KafkaAdmin.NewTopics(
                    List.of("orders", "bills", "parcels", "parcels-dlt", "letters", "crates",
                                    "questions", "answers", "jobs")
                            .stream()
                            .map(
                                    name ->
                                            TopicBuilder.name(name)
                                                    .partitions(partitions)
                                                    .config("retention.ms", "" + 1000000 * partitions)
                                                    .build())
                            .toArray(NewTopic[]::new));
        }

        static Map<String, Object> reading() {
            Map<String, Object> conf = new HashMap<>();
            conf.put("bootstrap.servers", address);
            conf.put("key.deserializer", StringDeserializer.class);
            conf.put("value.deserializer", StringDeserializer.class);
            conf.put("auto.offset.reset", "earliest");
            conf.put("isolation.level", "read_committed");
            conf.put("metadata.max.age.ms", "2000");
            return conf;
        }

        static Map<String, Object> writing() {
            return Map.of(
                    "bootstrap.servers", address,
                    "key.serializer", StringSerializer.class,
                    "value.serializer", StringSerializer.class);
        }

        @Bean
        ProducerFactory<String, String> producers() {
            return new DefaultKafkaProducerFactory<>(writing());
        }

        @Bean
        KafkaTemplate<String, String> kafkaTemplate(
                @Qualifier("producers") ProducerFactory<String, String> producers) {
            return new KafkaTemplate<>(producers);
        }

        static ConcurrentKafkaListenerContainerFactory<String, String> containers() {
            var made = new ConcurrentKafkaListenerContainerFactory<String, String>();
            made.setConsumerFactory(new DefaultKafkaConsumerFactory<>(reading()));
            return made;
        }

        @Bean
        ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory(
                @Qualifier("kafkaTemplate") KafkaTemplate<String, String> kafkaTemplate) {
            var made = containers();
            made.setReplyTemplate(kafkaTemplate);
            return made;
        }
    }

    /** Read and written in one transaction; every tenth order fails once, and is rolled back. */
    @Configuration
    static class Transactions {
        private final java.util.Set<String> failed =
                java.util.concurrent.ConcurrentHashMap.newKeySet();
        private KafkaTemplate<String, String> bills;

        @Bean
        ConcurrentKafkaListenerContainerFactory<String, String> exactlyOnce() {
            var producers = new DefaultKafkaProducerFactory<String, String>(Common.writing());
            producers.setTransactionIdPrefix("bills-" + ProcessHandle.current().pid() + "-");
            bills = new KafkaTemplate<>(producers);
            var made = Common.containers();
            made.setConcurrency(2);
            made.getContainerProperties()
                    .setKafkaAwareTransactionManager(new KafkaTransactionManager<>(producers));
            return made;
        }

        @KafkaListener(id = "billing", topics = "orders", containerFactory = "exactlyOnce")
        void order(ConsumerRecord<String, String> order) {
            bills.send("bills", order.key(), order.value());
            if (order.value().endsWith("7") && failed.add(order.value())) {
                throw new IllegalStateException("once");
            }
        }
    }

    /** Records that fail: tried again in place, in topics of their own, and within a batch. */
    @Configuration
    @EnableKafkaRetryTopic
    static class Failures {
        @Bean
        TaskScheduler scheduler() {
            return new ThreadPoolTaskScheduler();
        }

        @Bean
        ConcurrentKafkaListenerContainerFactory<String, String> byHand(
                KafkaTemplate<String, String> kafkaTemplate) {
            var made = Common.containers();
            made.getContainerProperties().setAckMode(ContainerProperties.AckMode.MANUAL_IMMEDIATE);
            made.setCommonErrorHandler(
                    new DefaultErrorHandler(
                            new DeadLetterPublishingRecoverer(kafkaTemplate),
                            new FixedBackOff(50, 2)));
            return made;
        }

        @KafkaListener(id = "parcels", topics = "parcels", containerFactory = "byHand")
        void parcel(String parcel, Acknowledgment acknowledgment) {
            if (parcel.startsWith("bad")) {
                say("fails " + parcel);
                throw new IllegalStateException(parcel);
            }
            acknowledgment.acknowledge();
            say("parcel " + parcel);
        }

        @RetryableTopic(attempts = "3", backOff = @BackOff(delay = 100))
        @KafkaListener(id = "letters", topics = "letters")
        void letter(ConsumerRecord<String, String> letter) {
            say("letter " + letter.value() + " of " + letter.topic());
            if (letter.value().startsWith("bad")) {
                throw new IllegalStateException(letter.value());
            }
        }

        @DltHandler
        void lost(ConsumerRecord<String, String> letter) {
            say("lost " + letter.value() + " of " + letter.topic());
        }

        private boolean hasBroken;

        @KafkaListener(
                id = "crates",
                topics = "crates",
                containerFactory = "kafkaListenerContainerFactory",
                batch = "true")
        void crates(List<ConsumerRecord<String, String>> crates) {
            for (int at = 0; at < crates.size(); at++) {
                String value = crates.get(at).value();
                if (value.equals("heavy") && !hasBroken) {
                    hasBroken = true;
                    throw new BatchListenerFailedException("too heavy", at);
                }
                say("crate " + value);
            }
        }
    }

    /** Questions and their answers, by topics. */
    @Configuration
    static class Questions {
        @KafkaListener(id = "wise", topics = "questions")
        @SendTo
        String answer(String question) {
            return "yes, " + question;
        }

        @Bean
        ReplyingKafkaTemplate<String, String, String> asking(
                @Qualifier("producers") ProducerFactory<String, String> producers) {
            var containers = Common.containers();
            var replies = containers.createContainer("answers");
            replies.getContainerProperties().setGroupId("asking");
            replies.setAutoStartup(false);
            var made = new ReplyingKafkaTemplate<>(producers, replies);
            made.setDefaultReplyTimeout(Duration.ofSeconds(60));
            return made;
        }

        static void ask(ReplyingKafkaTemplate<String, String, String> asking) throws Exception {
            asking.waitForAssignment(Duration.ofSeconds(60));
            for (int n = 0; ; n++) {
                var record = new ProducerRecord<String, String>("questions", "" + n);
                say("answer " + asking.sendAndReceive(record).get().value());
                Thread.sleep(20);
            }
        }
    }

    /** A share group: jobs are done, given back once, or refused. */
    @Configuration
    static class Shares {
        private final java.util.Set<String> released =
                java.util.concurrent.ConcurrentHashMap.newKeySet();

        @Bean
        ShareKafkaListenerContainerFactory<String, String> sharing(KafkaAdmin made)
                throws Exception {
            try (Admin admin = Admin.create(made.getConfigurationProperties())) {
                var group = new ConfigResource(ConfigResource.Type.GROUP, "workers");
                var entry = new ConfigEntry("share.auto.offset.reset", "earliest");
                var set = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
                admin.incrementalAlterConfigs(Map.of(group, List.of(set))).all().get();
            }
            Map<String, Object> conf = Common.reading();
            conf.keySet().removeAll(List.of("auto.offset.reset", "isolation.level"));
            var containers =
                    new ShareKafkaListenerContainerFactory<String, String>(
                            new DefaultShareConsumerFactory<>(conf));
            containers.setConcurrency(2);
            containers
                    .getContainerProperties()
                    .setShareAckMode(ContainerProperties.ShareAckMode.MANUAL);
            return containers;
        }

        @KafkaListener(
                id = "workers",
                topics = "jobs",
                groupId = "workers",
                containerFactory = "sharing")
        void job(ConsumerRecord<String, String> job, ShareAcknowledgment acknowledgment) {
            String value = job.value();
            if (value.startsWith("bad")) {
                say("refused " + value);
                acknowledgment.reject();
            } else if (value.endsWith("7") && released.add(value)) {
                say("released " + value);
                acknowledgment.release();
            } else {
                say("done " + value + " at " + job.deliveryCount().orElse((short) 0));
                acknowledgment.acknowledge();
            }
        }
    }

    public static void main(String[] args) throws Exception {
        address = args[0];
        partitions = Integer.parseInt(args[1]);
        var spring = new AnnotationConfigApplicationContext();
        spring.register(Common.class);
        Collection<String> parts = List.of(args).subList(2, args.length);
        for (String part : parts) {
            spring.register(Class.forName("SpringApp$" + part));
        }
        spring.refresh();
        spring.start();
        if (parts.contains("Questions")) {
            @SuppressWarnings("unchecked")
            ReplyingKafkaTemplate<String, String, String> asking =
                    spring.getBean("asking", ReplyingKafkaTemplate.class);
            Thread thread =
                    new Thread(
                            () -> {
                                try {
                                    Questions.ask(asking);
                                } catch (Exception exc) {
                                    say("no answer: " + exc);
                                }
                            });
            thread.setDaemon(true);
            thread.start();
        }
        say("ready");
        System.in.read();
        spring.close();
        System.exit(0);
    }
}
