package segbroker.spark;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.security.GeneralSecurityException;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;
import javax.net.ssl.SSLException;
import org.apache.spark.TaskContext;

/**
 * One connection to a broker: requests out, replies in their order, a deadline on each.
 *
 * <p>Requests may be sent ahead. The time of a reply counts from when it is waited for: between two
 * fetches Spark may let the reader stand for minutes. A reply lies in the link's one buffer until the
 * next is received; the buffer grows to the largest reply and is let go when it is beyond BUFFER_KEPT.
 *
 * <p>While it waits it looks every SLICE_MS whether Spark has ended the task.
 *
 * <p>Invariant: after any exception the link is closed and of no further use. Not for threads.
 */
final class Link implements AutoCloseable {
    static final int SETUP_TIMEOUT_MS = 10_000;
    static final int REPLY_SIZE_MAX = 256 << 20;
    static final int BUFFER_KEPT = 8 << 20;
    private static final int SLICE_MS = 200;
    private static final int RENEW_PERCENT = 80;
    private static final String SOFTWARE_VERSION = "0.5.12";

    static final int FETCH = 1;
    static final int LIST_OFFSETS = 2;
    static final int METADATA = 3;
    static final int SASL_HANDSHAKE = 17;
    static final int API_VERSIONS = 18;
    static final int SASL_AUTHENTICATE = 36;
    static final int FLOORS = 10003;

    private record Range(int least, int most) {}

    final ScanTask.Address address;
    private final String clientId;
    private final Map<Integer, Range> versions = new HashMap<>();
    private final ArrayDeque<Integer> inFlight = new ArrayDeque<>();
    private Socket socket;
    private InputStream in;
    private byte[] buffer = new byte[64 << 10];
    private int correlationId;
    private long renewAtMs = Long.MAX_VALUE;

    static long nowMs() {
        return System.nanoTime() / 1_000_000;
    }

    /** Connects, negotiates versions and logs in. */
    Link(ScanTask.Address address, ScanTask.Client client) throws LinkError {
        this.address = address;
        this.clientId = client.clientId();
        boolean isReady = false;
        try {
            setUp(client);
            isReady = true;
        } finally {
            if (!isReady) {
                close(); // nobody has it who could
            }
        }
    }

    private void setUp(ScanTask.Client client) throws LinkError {
        int timeoutMs = Math.min(client.requestTimeoutMs(), SETUP_TIMEOUT_MS);
        connect(client.security(), timeoutMs);
        if (!askVersions(3, timeoutMs)) {
            // A very old broker hangs up on ApiVersions 3, or refuses it; it answers version 0.
            connect(client.security(), timeoutMs);
            askVersions(0, timeoutMs);
        }
        if (client.security() != null && client.security().mechanism() != null) {
            logIn(client.security(), timeoutMs);
        }
    }

    private void connect(ScanTask.Security security, int timeoutMs) throws LinkError {
        close();
        inFlight.clear();
        socket = new Socket();
        try {
            socket.setTcpNoDelay(true);
            socket.connect(new InetSocketAddress(address.host(), address.port()), timeoutMs);
        } catch (IOException exc) {
            close();
            throw new LinkError(true, address + " cannot be reached: " + words(exc), exc);
        }
        try {
            if (security != null && security.tls()) {
                socket.setSoTimeout(timeoutMs);
                socket = Tls.wrapped(socket, address.host(), security);
            }
            in = socket.getInputStream();
        } catch (SocketTimeoutException exc) {
            close();
            throw new LinkError(true, address + ": no TLS handshake in time", exc);
        } catch (SSLException exc) {
            if (exc.getCause() instanceof EOFException || exc.getCause() instanceof SocketException) {
                throw lost(exc); // the broker went away meanwhile
            }
            close();
            throw new LinkError(false, address + ": " + words(exc), exc);
        } catch (GeneralSecurityException exc) {
            close();
            throw new LinkError(false, address + ": " + words(exc), exc);
        } catch (IOException exc) {
            throw lost(exc);
        }
    }

    /** Whether the broker took the question in this version. */
    private boolean askVersions(int version, int timeoutMs) throws LinkError {
        RequestWriter request = request(API_VERSIONS, version);
        if (version >= 3) {
            request.noTags().compactText("segbroker-java").compactText(SOFTWARE_VERSION).noTags();
        }
        Reply reply;
        try {
            send(request);
            reply = receive(timeoutMs);
        } catch (LinkError exc) {
            if (version > 0 && exc.retryable) {
                return false;
            }
            throw exc;
        }
        int code = reply.int16();
        if (code == LinkError.UNSUPPORTED_VERSION && version > 0) {
            return false;
        }
        LinkError.check(code, "ApiVersions");
        reply.flexible(version >= 3);
        for (int left = reply.count(); left > 0; left--) {
            versions.put(reply.int16(), new Range(reply.int16(), reply.int16()));
            reply.skipTags();
        }
        return true;
    }

    /** The newest version of `least` to `most` that the broker has too. */
    int version(int apiKey, int least, int most) throws LinkError {
        Range range = versions.get(apiKey);
        if (range == null || range.least > most || range.most < least) {
            throw new LinkError(false, address + " has no version of api " + apiKey + " that is known here");
        }
        return Math.min(range.most, most);
    }

    /** Whether the broker has this version. */
    boolean serves(int apiKey, int version) {
        Range range = versions.get(apiKey);
        return range != null && range.least <= version && version <= range.most;
    }

    boolean serves(int apiKey) {
        return versions.containsKey(apiKey);
    }

    private void logIn(ScanTask.Security security, int timeoutMs) throws LinkError {
        Login login = new Login(security);
        version(SASL_HANDSHAKE, 1, 1);
        Reply reply = ask(request(SASL_HANDSHAKE, 1).text(security.mechanism()), timeoutMs);
        if (reply.int16() != LinkError.NONE) {
            throw refused("the broker does not offer " + security.mechanism());
        }
        int version = version(SASL_AUTHENTICATE, 0, 1);
        byte[] message = login.begin();
        while (message != null) {
            reply = ask(request(SASL_AUTHENTICATE, version).bytes(message), timeoutMs);
            int code = reply.int16();
            String detail = reply.text();
            if (code != LinkError.NONE) {
                throw refused(detail != null ? detail : LinkError.of(code, "login").getMessage());
            }
            byte[] answer = reply.bytes();
            long lifetimeMs = version >= 1 ? reply.int64() : 0;
            try {
                message = login.answer(answer);
            } catch (GeneralSecurityException exc) {
                throw refused(security.mechanism() + ": " + exc.getMessage());
            }
            if (lifetimeMs > 0) {
                renewAtMs = nowMs() + lifetimeMs * RENEW_PERCENT / 100;
            }
        }
    }

    private LinkError refused(String why) {
        close();
        return new LinkError(false, address + ": " + why);
    }

    /** Whether the login has so little time left that a new connection is better. */
    boolean isStale() {
        return nowMs() >= renewAtMs;
    }

    /** Whether nothing is on the way, so that another task may use the link. */
    boolean isIdle() {
        return socket != null && inFlight.isEmpty() && !isStale();
    }

    /** Whether the broker has hung up: an end of the connection is there to be read; nothing else comes unasked. */
    boolean isHungUp() {
        try {
            socket.setSoTimeout(1);
            in.read();
            return true;
        } catch (SocketTimeoutException exc) {
            return false;
        } catch (IOException exc) {
            return true;
        }
    }

    RequestWriter request(int apiKey, int version) {
        return new RequestWriter(apiKey, version, ++correlationId, clientId);
    }

    void send(RequestWriter request) throws LinkError {
        try {
            socket.getOutputStream().write(request.frame());
            inFlight.add(correlationId);
        } catch (IOException exc) {
            throw lost(exc);
        }
    }

    Reply ask(RequestWriter request, int timeoutMs) throws LinkError {
        send(request);
        return receive(timeoutMs);
    }

    /** The oldest reply that is on its way, behind its correlation id. */
    Reply receive(int timeoutMs) throws LinkError {
        long deadlineMs = nowMs() + timeoutMs;
        try {
            readFully(4, deadlineMs);
            int size = new Reply(buffer, 0, 4).int32();
            if (size < 4 || size > REPLY_SIZE_MAX) {
                throw new IOException("a reply of " + size + " bytes");
            }
            if (size > buffer.length) {
                buffer = new byte[Math.max(size, Math.min(2 * buffer.length, BUFFER_KEPT))];
            }
            readFully(size, deadlineMs);
            Reply reply = new Reply(buffer, 0, size);
            int expected = inFlight.remove();
            int found = reply.int32();
            if (found != expected) {
                throw new IOException("a reply to request " + found + ", expected " + expected);
            }
            return reply;
        } catch (SocketTimeoutException exc) {
            close();
            throw new LinkError(true, address + " did not answer in time", exc);
        } catch (IOException exc) {
            throw lost(exc);
        }
    }

    private void readFully(int size, long deadlineMs) throws IOException {
        for (int done = 0; done < size; ) {
            long leftMs = deadlineMs - nowMs();
            socket.setSoTimeout((int) Math.max(1, Math.min(SLICE_MS, leftMs)));
            try {
                int count = in.read(buffer, done, size - done);
                if (count < 0) {
                    throw new EOFException("the broker closed the connection");
                }
                done += count;
            } catch (SocketTimeoutException exc) {
                checkTask();
                if (leftMs <= SLICE_MS) {
                    throw exc;
                }
            }
        }
    }

    /** Raises Spark's own exception where the task was ended meanwhile. */
    static void checkTask() {
        TaskContext task = TaskContext.get();
        if (task != null && task.isInterrupted()) {
            throw new org.apache.spark.TaskKilledException("the task was ended");
        }
    }

    private LinkError lost(IOException exc) {
        close();
        return new LinkError(true, address + ": " + words(exc), exc);
    }

    private static String words(Exception exc) {
        return exc.getMessage() != null ? exc.getMessage() : exc.getClass().getSimpleName();
    }

    /** Let a buffer go that one large batch made. */
    void shrink() {
        if (buffer.length > BUFFER_KEPT) {
            buffer = new byte[64 << 10];
        }
    }

    @Override
    public void close() {
        Socket closing = socket;
        socket = null;
        if (closing != null) {
            try {
                closing.close();
            } catch (IOException exc) {
                // It is of no further use either way.
                org.slf4j.LoggerFactory.getLogger("segbroker.spark").debug("close", exc);
            }
        }
    }
}
