package org.apache.kafka.common.test.api;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

import org.apache.kafka.server.common.Feature;

/** A level of a feature: not looked at, the daemon has the one it has. */
@Target(ElementType.ANNOTATION_TYPE)
@Retention(RetentionPolicy.RUNTIME)
public @interface ClusterFeature {
    Feature feature();
    short version();
}
