package org.apache.kafka.common.test.api;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/** What holds for all tests of a class that do not say otherwise. */
@Target(ElementType.TYPE)
@Retention(RetentionPolicy.RUNTIME)
public @interface ClusterTestDefaults {
    Type[] types() default {Type.KRAFT};
    int brokers() default 1;
    int controllers() default 1;
    int disksPerBroker() default 1;
    AutoStart autoStart() default AutoStart.YES;
    ClusterConfigProperty[] serverProperties() default {};
}
