package segbroker.spark;

/** What a task raises itself; says in one sentence all that is needed, as the Python reader does. */
public class SourceError extends RuntimeException {
    SourceError(String message, Throwable cause) {
        super(message, cause);
    }

    /** Offsets that the query must read are not in the log any more; names each range. */
    public static final class DataLoss extends SourceError {
        DataLoss(String message) {
            super(message, null);
        }
    }

    /** The brokers did not answer until the deadline; carries the last reason. */
    public static final class SourceUnavailable extends SourceError {
        SourceUnavailable(String message, Throwable cause) {
            super(message, cause);
        }
    }
}
