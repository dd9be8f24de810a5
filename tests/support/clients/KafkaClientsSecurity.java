import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;

/** Access rules and quotas through the Java admin client: BOOTSTRAP USER PASSWORD. */
public class KafkaClientsSecurity {
    static void check(boolean holds, Object what) {
        if (!holds) throw new AssertionError(String.valueOf(what));
    }

    public static void main(String[] args) throws Exception {
        Properties conf = new Properties();
        conf.put("bootstrap.servers", args[0]);
        conf.put("security.protocol", "SASL_PLAINTEXT");
        conf.put("sasl.mechanism", "SCRAM-SHA-256");
        conf.put("sasl.jaas.config",
            "org.apache.kafka.common.security.scram.ScramLoginModule required username=\""
                + args[1] + "\" password=\"" + args[2] + "\";");
        try (Admin admin = Admin.create(conf)) {
            rules(admin);
            quotas(admin);
        }
        System.out.println("all steps done");
    }

    static void rules(Admin admin) throws Exception {
        ResourcePattern pattern =
            new ResourcePattern(ResourceType.TOPIC, "java-", PatternType.PREFIXED);
        Collection<AclBinding> wanted = new ArrayList<>();
        for (AclOperation one : List.of(AclOperation.READ, AclOperation.WRITE)) {
            wanted.add(new AclBinding(pattern,
                new AccessControlEntry("User:java", "*", one, AclPermissionType.ALLOW)));
        }
        admin.createAcls(wanted).all().get();
        AclBindingFilter concerning = new AclBindingFilter(
            new ResourcePatternFilter(ResourceType.TOPIC, "java-topic", PatternType.MATCH),
            new AccessControlEntryFilter(
                "User:java", null, AclOperation.ANY, AclPermissionType.ANY));
        Collection<AclBinding> found = admin.describeAcls(concerning).values().get();
        check(new java.util.HashSet<>(found).equals(new java.util.HashSet<>(wanted)), found);
        Collection<AclBinding> gone = admin.deleteAcls(List.of(concerning)).all().get();
        check(gone.size() == 2, gone);
        check(admin.describeAcls(concerning).values().get().isEmpty(), "they are still there");
        check(admin.describeCluster(
            new org.apache.kafka.clients.admin.DescribeClusterOptions()
                .includeAuthorizedOperations(true)).authorizedOperations().get()
            .contains(AclOperation.ALTER), "the super user may alter the cluster");
    }

    static void quotas(Admin admin) throws Exception {
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, "java"));
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(
            new ClientQuotaAlteration.Op("producer_byte_rate", 1024.0),
            new ClientQuotaAlteration.Op("consumer_byte_rate", 2048.0))))).all().get();
        ClientQuotaFilter filter = ClientQuotaFilter.contains(
            List.of(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.USER, "java")));
        Map<ClientQuotaEntity, Map<String, Double>> found =
            admin.describeClientQuotas(filter).entities().get();
        check(found.equals(Map.of(entity,
            Map.of("producer_byte_rate", 1024.0, "consumer_byte_rate", 2048.0))), found);
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(
            new ClientQuotaAlteration.Op("producer_byte_rate", null),
            new ClientQuotaAlteration.Op("consumer_byte_rate", null))))).all().get();
        check(admin.describeClientQuotas(filter).entities().get().isEmpty(), "still a quota");
    }
}
