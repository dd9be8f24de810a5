package org.apache.kafka.common.test.api;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.server.common.MetadataVersion;
import org.junit.jupiter.api.TestTemplate;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.ExtendWith;

/** Marks a test of theirs that is given a cluster.  Kafka's own marker is in no public jar. */
@Target(ElementType.METHOD)
@Retention(RetentionPolicy.RUNTIME)
@TestTemplate
@Timeout(120)
@ExtendWith(ClusterTestExtension.class)
public @interface ClusterTest {
    Type[] types() default {};
    int brokers() default 0;
    int controllers() default 0;
    int disksPerBroker() default 0;
    AutoStart autoStart() default AutoStart.DEFAULT;
    SecurityProtocol brokerSecurityProtocol() default SecurityProtocol.PLAINTEXT;
    SecurityProtocol controllerSecurityProtocol() default SecurityProtocol.PLAINTEXT;
    MetadataVersion metadataVersion() default MetadataVersion.IBP_4_0_IV3;
    ClusterConfigProperty[] serverProperties() default {};
    String[] tags() default {};
    ClusterFeature[] features() default {};
}
