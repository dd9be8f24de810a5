package segbroker.spark;

import java.util.concurrent.ThreadLocalRandom;

/** How long to wait before trying again: doubling up to a limit, drawn from the upper half. */
final class Backoff {
    private final long firstMs;
    private final long mostMs;
    private int attempts;

    Backoff(long firstMs, long mostMs) {
        this.firstMs = firstMs;
        this.mostMs = mostMs;
    }

    long nextDelayMs() {
        long ceiling = Math.min(mostMs, firstMs << Math.min(attempts++, 20));
        return ThreadLocalRandom.current().nextLong((ceiling + 1) / 2, Math.max(1, ceiling) + 1);
    }

    void reset() {
        attempts = 0;
    }

    /** Wait, unless Spark ends the task. */
    static void sleep(long delayMs) {
        try {
            Thread.sleep(delayMs);
        } catch (InterruptedException exc) {
            Thread.currentThread().interrupt();
            throw new org.apache.spark.TaskKilledException("the task was interrupted");
        }
        Link.checkTask();
    }
}
