package segbroker.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What of a range is gone, and how it is said: the same numbers and words as in spark/loss.py, which
 * explains them. A test reads both.
 */
final class Loss {
    static final int GAP_DELETED = 5;
    static final String RECREATED = "the topic was deleted and made again";
    static final String GONE = "the topic or partition does not exist or is not selected any more";

    private static final Logger LOG = LoggerFactory.getLogger("segbroker.spark");
    private static final Map<String, String> WORDS =
            Map.of(
                    "ttl", "records aged out",
                    "cap", "records were evicted because the log reached its size limit",
                    "corruption", "records were damaged on disk",
                    "lost_tail",
                            "at most these were written and not yet synced when the broker's machine"
                                    + " stopped",
                    "deleted", "records were deleted",
                    "unknown", "records aged out or were deleted");
    // By the numbers in the attributes of a gap batch.
    private static final List<String> GAP_WORDS =
            List.of("unknown", "lost_tail", "corruption", "cap", "ttl", "deleted");

    private Loss() {}

    /** Records are in [start, end); those below `floor` are gone for the reason `word`. */
    record LogBounds(long start, long end, long floor, String word) {}

    /** Offsets [start, end) that cannot be read, and why. */
    record Lost(String topic, int partition, long start, long end, String reason) {
        @Override
        public String toString() {
            return "topic '" + topic + "' partition " + partition + ": offsets [" + start + ", " + end
                    + ") are lost, " + reason;
        }
    }

    record Clipped(long start, long end, List<Lost> lost) {}

    /** What is left of [start, end), maybe nothing, and what is lost of it. */
    static Clipped clip(String topic, int partition, long start, long end, LogBounds log) {
        List<Lost> lost = new ArrayList<>();
        String startsAt = "the log now starts at " + log.start + " (";
        long floor = Math.min(log.floor, log.start);
        if (start < floor && start < end) {
            String reason = startsAt + words(log.word) + ")";
            lost.add(new Lost(topic, partition, start, Math.min(end, floor), reason));
            start = Math.min(end, floor);
        }
        if (start < log.start && start < end) {
            String reason = startsAt + words("deleted") + ")";
            lost.add(new Lost(topic, partition, start, Math.min(end, log.start), reason));
            start = Math.min(end, log.start);
        }
        if (end > log.end) {
            if (start < end) {
                String reason = "the log now ends at " + log.end + " (it was cut or the topic was made anew)";
                lost.add(new Lost(topic, partition, Math.max(start, log.end), end, reason));
            }
            end = Math.max(start, log.end);
        }
        return new Clipped(start, Math.max(start, end), lost);
    }

    /** The part of [start, end) that a gap batch in the log covers. */
    static Lost inLog(String topic, int partition, long start, long end, BatchHeader gap) {
        String reason = "the log has a gap there (" + words(GAP_WORDS.get(gap.gapReason())) + ")";
        return new Lost(
                topic,
                partition,
                Math.max(gap.baseOffset(), start),
                Math.min(gap.nextOffset(), end),
                reason);
    }

    /** Fail with the ranges, or log them. */
    static void report(List<Lost> lost, boolean fail) {
        if (lost.isEmpty()) {
            return;
        }
        if (!fail) {
            for (Lost each : lost) {
                LOG.warn(
                        "{} ({} offsets); reading on because failOnDataLoss is false",
                        each,
                        each.end - each.start);
            }
            return;
        }
        List<String> texts = lost.stream().map(Lost::toString).toList();
        throw new SourceError.DataLoss(
                String.join("; ", texts) + ". Set failOnDataLoss=false to read what is left.");
    }

    private static String words(String word) {
        return WORDS.getOrDefault(word, WORDS.get("unknown"));
    }
}
