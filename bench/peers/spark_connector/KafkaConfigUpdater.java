package org.apache.spark.kafka010;

import java.util.HashMap;
import java.util.Map;
import scala.Option;

/** Parameters of a Kafka client, as Spark's class of this name has them, without delegation tokens. */
public final class KafkaConfigUpdater {
    private final Map<String, Object> map = new HashMap<>();

    public KafkaConfigUpdater(String module, scala.collection.immutable.Map<String, Object> given) {
        for (var each = given.iterator(); each.hasNext(); ) {
            var pair = each.next();
            map.put(pair._1(), pair._2());
        }
    }

    public KafkaConfigUpdater set(String name, Object value) {
        map.put(name, value);
        return this;
    }

    public KafkaConfigUpdater setIfUnset(String name, Object value) {
        map.putIfAbsent(name, value);
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded() {
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded(Option<KafkaTokenClusterConf> none) {
        return this;
    }

    public Map<String, Object> build() {
        return map;
    }
}
