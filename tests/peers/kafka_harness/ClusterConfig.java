package org.apache.kafka.common.test.api;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.server.common.Feature;

/** What a test has asked of its cluster, as far as tests look. */
public class ClusterConfig {
    private SecurityProtocol protocol = SecurityProtocol.PLAINTEXT;
    private int brokers = 1;
    private int controllers = 1;
    private final Map<String, String> serverProperties = new HashMap<>();
    private final Map<Integer, Map<String, String>> perServer = new HashMap<>();

    public SecurityProtocol brokerSecurityProtocol() {
        return protocol;
    }

    public int numBrokers() {
        return brokers;
    }

    public int numControllers() {
        return controllers;
    }

    public Map<String, String> serverProperties() {
        return serverProperties;
    }

    public Map<Integer, Map<String, String>> perServerOverrideProperties() {
        return perServer;
    }

    public static Builder defaultBuilder() {
        return new Builder();
    }

    /** Types and features are not looked at: the daemon is of one kind, and has the features it has. */
    public static class Builder {
        private final ClusterConfig made = new ClusterConfig();

        public Builder setBrokerSecurityProtocol(SecurityProtocol protocol) {
            made.protocol = protocol;
            return this;
        }

        public Builder setControllerSecurityProtocol(SecurityProtocol protocol) {
            return this;
        }

        public Builder setBrokers(int brokers) {
            made.brokers = brokers;
            return this;
        }

        public Builder setControllers(int controllers) {
            made.controllers = controllers;
            return this;
        }

        public Builder setServerProperties(Map<String, String> properties) {
            made.serverProperties.putAll(properties);
            return this;
        }

        public Builder setPerServerProperties(Map<Integer, Map<String, String>> properties) {
            properties.forEach((id, some) ->
                made.perServer.computeIfAbsent(id, its -> new HashMap<>()).putAll(some));
            return this;
        }

        public Builder setTypes(Set<Type> types) {
            return this;
        }

        public Builder setFeatures(Map<Feature, Short> features) {
            return this;
        }

        public Builder setTags(List<String> tags) {
            return this;
        }

        public ClusterConfig build() {
            return made;
        }
    }
}
