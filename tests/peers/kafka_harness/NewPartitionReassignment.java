package org.apache.kafka.clients.admin;

import java.util.List;
import java.util.Optional;

import kafka.server.ReplicaLimit;

/** In the place of Kafka's class of this name: to the one replica (see ReplicaLimit). */
public class NewPartitionReassignment {
    private final List<Integer> targetReplicas;

    public NewPartitionReassignment(List<Integer> targetReplicas) {
        if (targetReplicas == null || targetReplicas.isEmpty())
            throw new IllegalArgumentException("Cannot create a new partition reassignment without any replicas");
        this.targetReplicas = List.copyOf(ReplicaLimit.replicas(targetReplicas));
    }

    public static Optional<NewPartitionReassignment> ofReplicas(Integer... brokers) {
        return Optional.of(new NewPartitionReassignment(List.of(brokers)));
    }

    public List<Integer> targetReplicas() {
        return targetReplicas;
    }
}
