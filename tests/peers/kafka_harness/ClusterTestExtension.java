package org.apache.kafka.common.test.api;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

import kafka.server.SegbrokerInstance;
import org.apache.kafka.common.test.ClusterInstance;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;
import org.junit.jupiter.api.extension.TestTemplateInvocationContextProvider;

/** Gives each test of a cluster a daemon: before it begins, until it has ended. */
public class ClusterTestExtension implements TestTemplateInvocationContextProvider {
    @Override
    public boolean supportsTestTemplate(ExtensionContext context) {
        return !wanted(context).isEmpty();
    }

    @Override
    public Stream<TestTemplateInvocationContext> provideTestTemplateInvocationContexts(ExtensionContext context) {
        String name = context.getRequiredTestClass().getSimpleName() + "."
            + context.getRequiredTestMethod().getName();
        return wanted(context).stream().map(test -> new Invocation(instance(context, test, name)));
    }

    private static List<ClusterTest> wanted(ExtensionContext context) {
        List<ClusterTest> found = new ArrayList<>();
        ClusterTest one = context.getRequiredTestMethod().getAnnotation(ClusterTest.class);
        if (one != null)
            found.add(one);
        ClusterTests several = context.getRequiredTestMethod().getAnnotation(ClusterTests.class);
        if (several != null)
            found.addAll(Arrays.asList(several.value()));
        return found;
    }

    private static SegbrokerInstance instance(ExtensionContext context, ClusterTest test, String name) {
        ClusterTestDefaults defaults = context.getRequiredTestClass().getAnnotation(ClusterTestDefaults.class);
        int brokers = test.brokers() != 0 ? test.brokers() : defaults == null ? 1 : defaults.brokers();
        Map<Integer, Map<String, String>> properties = new HashMap<>();
        properties.put(-1, new HashMap<>());
        if (defaults != null)
            put(properties, defaults.serverProperties());
        put(properties, test.serverProperties());
        return new SegbrokerInstance(name, brokers, test.brokerSecurityProtocol(), properties);
    }

    private static void put(Map<Integer, Map<String, String>> all, ClusterConfigProperty[] properties) {
        for (ClusterConfigProperty one : properties)
            all.computeIfAbsent(one.id(), id -> new HashMap<>()).put(one.key(), one.value());
    }

    private record Invocation(SegbrokerInstance instance)
            implements TestTemplateInvocationContext, ParameterResolver, BeforeEachCallback, AfterEachCallback {
        @Override
        public List<Extension> getAdditionalExtensions() {
            return List.of(this);
        }

        @Override
        public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
            return parameter.getParameter().getType() == ClusterInstance.class;
        }

        @Override
        public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
            return instance;
        }

        @Override
        public void beforeEach(ExtensionContext context) {
            instance.start();
        }

        @Override
        public void afterEach(ExtensionContext context) {
            instance.stop();
        }
    }
}
