package org.apache.spark.kafka010;

import scala.Tuple2;
import scala.collection.immutable.Seq;

/** What a log shows of parameters: their names. */
public final class KafkaRedactionUtil$ {
    public static final KafkaRedactionUtil$ MODULE$ = new KafkaRedactionUtil$();

    private KafkaRedactionUtil$() {}

    @SuppressWarnings("unchecked")
    public Seq<Tuple2<String, String>> redactParams(Seq<Tuple2<String, Object>> given) {
        return (Seq<Tuple2<String, String>>) given.map(pair -> new Tuple2<>(pair._1(), "..."));
    }
}
