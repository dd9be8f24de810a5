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
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.api.ClusterConfig;

/** What a test is given as its cluster: as much of Kafka's as its tests of requests use. */
public interface ClusterInstance {
    Map<Integer, KafkaBroker> brokers();
    Map<Integer, ControllerServer> controllers();
    Set<Integer> brokerIds();
    Set<Integer> controllerIds();
    ClusterConfig config();
    String clusterId();
    String bootstrapServers();
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
    void shutdownBroker(int broker);
    void startBroker(int broker);
}
