package segbroker.spark;

/** A batch breaks a rule; says which. */
final class InvalidBatch extends Exception {
    InvalidBatch(String message) {
        super(message);
    }

    InvalidBatch(String message, Throwable cause) {
        super(message, cause);
    }
}
