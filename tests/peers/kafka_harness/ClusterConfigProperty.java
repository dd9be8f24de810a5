package org.apache.kafka.common.test.api;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/** A setting of one broker of the test, or of all (-1). */
@Target(ElementType.ANNOTATION_TYPE)
@Retention(RetentionPolicy.RUNTIME)
public @interface ClusterConfigProperty {
    int id() default -1;
    String key();
    String value();
}
