package org.apache.kafka.common.test;

import java.util.Collection;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

import kafka.network.SocketServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;

/** What a test is given as its cluster: as much of Kafka's as its tests use. */
public interface ClusterInstance {
    Map<Integer, KafkaBroker> brokers();
    Map<Integer, ControllerServer> controllers();
    Map<Integer, KafkaBroker> aliveBrokers();
    Set<Integer> brokerIds();
    Set<Integer> controllerIds();
    Type type();
    ClusterConfig config();
    String clusterId();
    String bootstrapServers();
    String bootstrapControllers();
    Set<GroupProtocol> supportedGroupProtocols();
    ListenerName clientListener();
    Optional<ListenerName> controllerListenerName();
    Collection<SocketServer> brokerSocketServers();
    SocketServer anyBrokerSocketServer();
    Admin admin();
    Admin admin(Map<String, Object> configs);
    <K, V> Producer<K, V> producer();
    <K, V> Producer<K, V> producer(Map<String, Object> configs);
    <K, V> Consumer<K, V> consumer();
    <K, V> Consumer<K, V> consumer(Map<String, Object> configs);
    void createTopic(String topic, int partitions, short replicas) throws InterruptedException;
    void waitForTopic(String topic, int partitions) throws InterruptedException;
    void waitTopicDeletion(String topic) throws InterruptedException;
    void waitForReadyBrokers() throws InterruptedException;
    void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries) throws InterruptedException;
    void shutdownBroker(int broker);
    void startBroker(int broker);
}
