import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Share consumers that do as they are told, and an admin: BOOTSTRAP [KEY=VALUE...].
 *
 * <p>Each line of standard input is a command, its words between tabs; it is answered by lines of
 * words between tabs and a line ".". What could not be done ends with a line "!" instead: the
 * class of the exception, and what it says. The settings of the command line are everybody's.
 */
public class ShareConsumers {
    private static final Map<String, String> COMMON = new HashMap<>();
    private static final Map<String, Member> MEMBERS = new HashMap<>();
    private static Admin admin;

    /** A consumer, what it was given, and what its callback was told. */
    private static class Member {
        final KafkaShareConsumer<String, String> consumer;
        final Map<String, ConsumerRecord<String, String>> records = new HashMap<>();
        final List<String> told = new ArrayList<>();

        Member(Properties conf) {
            consumer = new KafkaShareConsumer<>(conf);
            consumer.setAcknowledgementCommitCallback((offsets, error) -> offsets.forEach(
                    (where, which) -> told.add(line("told", where.topic(), where.partition(),
                            error == null ? "None" : error.getClass().getSimpleName(),
                            String.join(",", new TreeSet<>(which).stream().map(String::valueOf).toList())))));
        }
    }

    public static void main(String[] args) throws Exception {
        COMMON.put("bootstrap.servers", args[0]);
        settings(COMMON, args, 1);
        admin = Admin.create(new HashMap<>(COMMON));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String command = in.readLine(); command != null; command = in.readLine()) {
            try {
                for (String answer : answer(command.split("\t"))) {
                    System.out.println(answer);
                }
                System.out.println(".");
            } catch (Exception error) {
                Throwable why = error instanceof ExecutionException ? error.getCause() : error;
                String said = String.valueOf(why.getMessage()).replaceAll("\\s+", " ");
                System.out.println(line("!", why.getClass().getSimpleName(), said));
            }
            System.out.flush();
        }
        for (Member member : MEMBERS.values()) {
            member.consumer.close(Duration.ofSeconds(5));
        }
        admin.close(Duration.ofSeconds(5));
    }

    private static List<String> answer(String[] words) throws Exception {
        switch (words[0]) {
            case "open":
                return open(words);
            case "describe":
                return describe(words[1]);
            case "list":
                return list();
            case "offsets":
                return offsets(words[1]);
            case "alter":
                admin.alterShareGroupOffsets(words[1],
                        Map.of(new TopicPartition(words[2], Integer.parseInt(words[3])),
                                Long.parseLong(words[4]))).all().get();
                return List.of();
            case "forget":
                admin.deleteShareGroupOffsets(words[1], Set.of(words[2])).all().get();
                return List.of();
            case "delete":
                admin.deleteShareGroups(Set.of(words[1])).all().get();
                return List.of();
            case "set":
                return set(words);
            default:
                return ask(MEMBERS.get(words[1]), words);
        }
    }

    private static List<String> open(String[] words) {
        Properties conf = new Properties();
        conf.put("key.deserializer", StringDeserializer.class.getName());
        conf.put("value.deserializer", StringDeserializer.class.getName());
        conf.put("client.id", words[1]);
        conf.putAll(COMMON);
        Map<String, String> own = new HashMap<>();
        settings(own, words, 2);
        conf.putAll(own);
        MEMBERS.put(words[1], new Member(conf));
        return List.of();
    }

    private static List<String> ask(Member member, String[] words) {
        KafkaShareConsumer<String, String> consumer = member.consumer;
        List<String> said = new ArrayList<>();
        switch (words[0]) {
            case "subscribe":
                consumer.subscribe(Arrays.asList(words).subList(2, words.length));
                return said;
            case "unsubscribe":
                consumer.unsubscribe();
                return said;
            case "poll":
                for (ConsumerRecord<String, String> one : consumer.poll(millis(words[2]))) {
                    member.records.put(line(one.topic(), one.partition(), one.offset()), one);
                    said.add(line("record", one.topic(), one.partition(), one.offset(),
                            one.deliveryCount().map(String::valueOf).orElse("None"), one.value()));
                }
                return said;
            case "acknowledge":
                consumer.acknowledge(member.records.get(line(words[2], words[3], words[4])),
                        AcknowledgeType.valueOf(words[5]));
                return said;
            case "commit":
                consumer.commitSync(Duration.ofSeconds(20)).forEach((where, error) -> said.add(
                        line("committed", where.topic(), where.partition(),
                                error.map(it -> it.getClass().getSimpleName()).orElse("None"))));
                return said;
            case "told":
                said.addAll(member.told);
                member.told.clear();
                return said;
            case "lock":
                Optional<Integer> lock = consumer.acquisitionLockTimeoutMs();
                return List.of(line("lock", lock.map(String::valueOf).orElse("None")));
            case "close":
                MEMBERS.remove(words[1]);
                consumer.close(Duration.ofSeconds(20));
                return member.told;
            default:
                throw new IllegalArgumentException("no command " + words[0]);
        }
    }

    private static List<String> describe(String group) throws Exception {
        ShareGroupDescription found = admin.describeShareGroups(Set.of(group)).all().get().get(group);
        List<String> said = new ArrayList<>();
        said.add(line("group", found.groupId(), found.groupState()));
        found.members().forEach(member -> {
            Set<String> parts = new TreeSet<>();
            member.assignment().topicPartitions().forEach(one -> parts.add(one.toString()));
            said.add(line("member", member.clientId(), String.join(",", parts)));
        });
        return said;
    }

    private static List<String> list() throws Exception {
        List<String> said = new ArrayList<>();
        for (GroupListing one : admin.listGroups().all().get()) {
            said.add(line("group", one.groupId(), one.type().map(Object::toString).orElse("None"),
                    one.groupState().map(Object::toString).orElse("None"), one.protocol()));
        }
        return said;
    }

    private static List<String> offsets(String group) throws Exception {
        List<String> said = new ArrayList<>();
        admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
                .partitionsToOffsetInfo(group).get().forEach((where, info) -> said.add(
                        info == null
                                ? line("offset", where.topic(), where.partition(), "None", "None")
                                : line("offset", where.topic(), where.partition(), info.startOffset(),
                                        info.lag().map(String::valueOf).orElse("None"))));
        return said;
    }

    private static List<String> set(String[] words) throws Exception {
        Map<String, String> wanted = new HashMap<>();
        settings(wanted, words, 2);
        Set<AlterConfigOp> changes = new HashSet<>();
        wanted.forEach((key, value) -> changes.add(
                new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET)));
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, words[1]);
        admin.incrementalAlterConfigs(Map.of(group, changes)).all().get();
        return List.of();
    }

    private static void settings(Map<String, String> into, String[] words, int from) {
        for (int n = from; n < words.length; n++) {
            String[] pair = words[n].split("=", 2);
            into.put(pair[0], pair[1]);
        }
    }

    private static Duration millis(String text) {
        return Duration.ofMillis(Long.parseLong(text));
    }

    private static String line(Object... words) {
        return String.join("\t", Arrays.stream(words).map(String::valueOf).toList());
    }
}
