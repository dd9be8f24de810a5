package org.apache.kafka.common.test;

import java.util.function.Supplier;

/** As much of Kafka's class of this name as the tests use; it is in no public jar. */
public final class TestUtils {
    private static final long MAX_WAIT_MS = 15_000;
    private static final long POLL_MS = 100;

    private TestUtils() { }

    public static void waitForCondition(Supplier<Boolean> condition, String details) throws InterruptedException {
        waitForCondition(condition, MAX_WAIT_MS, details);
    }

    /** What the condition throws is tried again, as theirs does. */
    public static void waitForCondition(Supplier<Boolean> condition, long maxWaitMs, String details)
            throws InterruptedException {
        long end = System.nanoTime() + maxWaitMs * 1_000_000;
        while (true) {
            Throwable failure = null;
            try {
                if (condition.get())
                    return;
            } catch (RuntimeException | AssertionError thrown) {
                failure = thrown;
            }
            if (System.nanoTime() > end)
                throw new AssertionError("Condition not met within " + maxWaitMs + " ms. " + details, failure);
            Thread.sleep(POLL_MS);
        }
    }
}
