package org.apache.kafka.common.test.api;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

import kafka.server.SegbrokerInstance;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.utils.Exit;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;
import org.junit.jupiter.api.extension.TestTemplateInvocationContextProvider;
import org.junit.platform.commons.support.ReflectionSupport;

/**
 * Gives each test of a cluster a daemon: before it begins, until it has ended.
 *
 * A tool that would end the virtual machine meanwhile fails.
 */
public class ClusterTestExtension implements TestTemplateInvocationContextProvider {
    @Override
    public boolean supportsTestTemplate(ExtensionContext context) {
        return !wanted(context).isEmpty();
    }

    @Override
    public Stream<TestTemplateInvocationContext> provideTestTemplateInvocationContexts(ExtensionContext context) {
        String name = context.getRequiredTestClass().getSimpleName() + "."
            + context.getRequiredTestMethod().getName();
        return wanted(context).stream().map(one -> new Invocation(new SegbrokerInstance(name, one)));
    }

    private static List<ClusterConfig> wanted(ExtensionContext context) {
        Method test = context.getRequiredTestMethod();
        ClusterTestDefaults defaults = context.getRequiredTestClass().getAnnotation(ClusterTestDefaults.class);
        List<ClusterConfig> found = new ArrayList<>();
        ClusterTest one = test.getAnnotation(ClusterTest.class);
        if (one != null)
            found.add(marked(one, defaults));
        ClusterTests several = test.getAnnotation(ClusterTests.class);
        if (several != null)
            for (ClusterTest each : several.value())
                found.add(marked(each, defaults));
        ClusterTemplate template = test.getAnnotation(ClusterTemplate.class);
        if (template != null)
            for (Object named : namedBy(context.getRequiredTestClass(), template.value()))
                found.add((ClusterConfig) named);
        return found;
    }

    private static List<?> namedBy(Class<?> tests, String method) {
        return (List<?>) ReflectionSupport.invokeMethod(
            ReflectionSupport.findMethod(tests, method).orElseThrow(), null);
    }

    private static ClusterConfig marked(ClusterTest test, ClusterTestDefaults defaults) {
        int brokers = test.brokers() != 0 ? test.brokers() : defaults == null ? 1 : defaults.brokers();
        int controllers = test.controllers() != 0 ? test.controllers() : defaults == null ? 1 : defaults.controllers();
        ClusterConfig.Builder made = ClusterConfig.defaultBuilder().setBrokers(brokers).setControllers(controllers)
            .setBrokerSecurityProtocol(test.brokerSecurityProtocol());
        if (defaults != null)
            put(made, defaults.serverProperties());
        put(made, test.serverProperties());
        return made.build();
    }

    private static void put(ClusterConfig.Builder all, ClusterConfigProperty[] properties) {
        for (ClusterConfigProperty one : properties)
            if (one.id() == -1)
                all.setServerProperties(Map.of(one.key(), one.value()));
            else
                all.setPerServerProperties(Map.of(one.id(), Map.of(one.key(), one.value())));
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
            Exit.setExitProcedure((code, message) -> {
                throw new IllegalStateException("exit " + code + ": " + message);
            });
            instance.start();
        }

        @Override
        public void afterEach(ExtensionContext context) {
            instance.stop();
            Exit.resetExitProcedure();
        }
    }
}
