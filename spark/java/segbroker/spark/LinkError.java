package segbroker.spark;

import java.util.Map;

/**
 * A request that failed; `retryable`: the same request may succeed later.
 *
 * <p>Of the broker's error codes those are here that a reader can meet; the words are those of
 * protocol/errors.py.
 */
final class LinkError extends Exception {
    static final int NONE = 0;
    static final int OFFSET_OUT_OF_RANGE = 1;
    static final int UNKNOWN_TOPIC_OR_PARTITION = 3;
    static final int LEADER_NOT_AVAILABLE = 5;
    static final int UNSUPPORTED_VERSION = 35;

    private record Code(boolean retryable, String words) {}

    private static final Map<Integer, Code> CODES =
            Map.ofEntries(
                    Map.entry(-1, new Code(false, "The server met an error that has no code")),
                    Map.entry(1, new Code(false, "The offset is below the log start or above the log end")),
                    Map.entry(2, new Code(true, "A batch has a wrong checksum or length")),
                    Map.entry(3, new Code(true, "There is no such topic or partition here")),
                    Map.entry(5, new Code(true, "The partition has no leader yet")),
                    Map.entry(6, new Code(true, "This broker does not serve the partition")),
                    Map.entry(7, new Code(true, "The request was not done within its time")),
                    Map.entry(9, new Code(true, "The replica is not available")),
                    Map.entry(13, new Code(true, "The server disconnected before a reply came")),
                    Map.entry(29, new Code(false, "Not allowed on this topic")),
                    Map.entry(31, new Code(false, "Not allowed on this cluster")),
                    Map.entry(35, new Code(false, "This version of the api is not served")),
                    Map.entry(56, new Code(true, "The disk failed: the partition cannot be written or read")),
                    Map.entry(58, new Code(false, "Wrong credentials")),
                    Map.entry(74, new Code(true, "The leader epoch is older than the partition's")),
                    Map.entry(75, new Code(true, "The leader epoch is newer than the partition's")),
                    Map.entry(78, new Code(true, "The high watermark has not caught up yet")),
                    Map.entry(89, new Code(true, "A quota was exceeded")),
                    Map.entry(100, new Code(true, "There is no topic with this id")),
                    Map.entry(103, new Code(true, "The topic of this name has another id")));

    final boolean retryable;

    LinkError(boolean retryable, String message, Throwable cause) {
        super(message, cause);
        this.retryable = retryable;
    }

    LinkError(boolean retryable, String message) {
        this(retryable, message, null);
    }

    /** The error of a wire code; `about` says with which values it was met. */
    static LinkError of(int code, String about) {
        Code known = CODES.getOrDefault(code, new Code(false, "error code " + code));
        return new LinkError(known.retryable, about + ": " + known.words);
    }

    /** Throw the error of a wire code, unless it is that of success. */
    static void check(int code, String about) throws LinkError {
        if (code != NONE) {
            throw of(code, about);
        }
    }
}
