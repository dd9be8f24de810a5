package org.apache.spark.kafka010;

/** Of a cluster with delegation tokens; there is none. */
public final class KafkaTokenClusterConf {
    private KafkaTokenClusterConf() {}
}
