package org.apache.kafka.common.test.api;

import java.util.Map;

/** What a test has asked of its cluster, as far as tests look. */
public class ClusterConfig {
    private final Map<String, String> serverProperties;

    public ClusterConfig(Map<String, String> serverProperties) {
        this.serverProperties = serverProperties;
    }

    public Map<String, String> serverProperties() {
        return serverProperties;
    }
}
