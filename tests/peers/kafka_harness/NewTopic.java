package org.apache.kafka.clients.admin;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;

import kafka.server.ReplicaLimit;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableReplicaAssignment;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableTopic;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableTopicConfig;
import org.apache.kafka.common.requests.CreateTopicsRequest;

/** In the place of Kafka's class of this name: it asks for one replica (see ReplicaLimit). */
public class NewTopic {
    private final String name;
    private final Optional<Integer> numPartitions;
    private final Optional<Short> replicationFactor;
    private final Map<Integer, List<Integer>> replicasAssignments;
    private Map<String, String> configs = null;

    public NewTopic(String name, int numPartitions, short replicationFactor) {
        this(name, Optional.of(numPartitions), Optional.of(replicationFactor));
    }

    public NewTopic(String name, Optional<Integer> numPartitions, Optional<Short> replicationFactor) {
        this.name = name;
        this.numPartitions = numPartitions;
        this.replicationFactor = replicationFactor;
        this.replicasAssignments = null;
    }

    public NewTopic(String name, Map<Integer, List<Integer>> replicasAssignments) {
        this.name = name;
        this.numPartitions = Optional.empty();
        this.replicationFactor = Optional.empty();
        this.replicasAssignments = Collections.unmodifiableMap(replicasAssignments);
    }

    public String name() {
        return name;
    }

    public int numPartitions() {
        return numPartitions.orElse(CreateTopicsRequest.NO_NUM_PARTITIONS);
    }

    public short replicationFactor() {
        return replicationFactor.orElse(CreateTopicsRequest.NO_REPLICATION_FACTOR);
    }

    public Map<Integer, List<Integer>> replicasAssignments() {
        return replicasAssignments;
    }

    public NewTopic configs(Map<String, String> configs) {
        this.configs = configs;
        return this;
    }

    public Map<String, String> configs() {
        return configs;
    }

    CreatableTopic convertToCreatableTopic() {
        CreatableTopic topic = new CreatableTopic()
            .setName(name)
            .setNumPartitions(numPartitions())
            .setReplicationFactor(ReplicaLimit.replicas(replicationFactor()));
        if (replicasAssignments != null)
            replicasAssignments.forEach((partition, replicas) -> topic.assignments().add(
                new CreatableReplicaAssignment().setPartitionIndex(partition)
                    .setBrokerIds(new ArrayList<>(ReplicaLimit.replicas(replicas)))));
        Map<String, String> all = new HashMap<>(ReplicaLimit.defaults);
        if (configs != null)
            all.putAll(configs);
        all.forEach((key, value) -> topic.configs().add(
            new CreatableTopicConfig().setName(key).setValue(ReplicaLimit.setting(key, value))));
        return topic;
    }

    @Override
    public String toString() {
        return "(name=" + name + ", numPartitions=" + numPartitions + ", replicationFactor="
            + replicationFactor + ", configs=" + configs + ")";
    }

    @Override
    public boolean equals(Object other) {
        if (!(other instanceof NewTopic))
            return false;
        NewTopic that = (NewTopic) other;
        return name.equals(that.name) && numPartitions.equals(that.numPartitions)
            && replicationFactor.equals(that.replicationFactor)
            && Objects.equals(replicasAssignments, that.replicasAssignments)
            && Objects.equals(configs, that.configs);
    }

    @Override
    public int hashCode() {
        return Objects.hash(name, numPartitions, replicationFactor, replicasAssignments, configs);
    }
}
