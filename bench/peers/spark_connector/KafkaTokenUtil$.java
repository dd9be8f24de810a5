package org.apache.spark.kafka010;

import java.util.Map;
import org.apache.spark.SparkConf;
import scala.Option;

/** No cluster has delegation tokens. */
public final class KafkaTokenUtil$ {
    public static final KafkaTokenUtil$ MODULE$ = new KafkaTokenUtil$();

    private KafkaTokenUtil$() {}

    public Option<KafkaTokenClusterConf> findMatchingTokenClusterConfig(
            SparkConf conf, String bootstrapServers) {
        return Option.empty();
    }

    public boolean needTokenUpdate(Map<String, Object> given, Option<KafkaTokenClusterConf> conf) {
        return false;
    }
}
