package kafka.server;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.kafka.common.message.SaslAuthenticateRequestData;
import org.apache.kafka.common.message.SaslHandshakeRequestData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.ResponseHeader;
import org.apache.kafka.common.requests.SaslAuthenticateRequest;
import org.apache.kafka.common.requests.SaslHandshakeRequest;
import org.apache.kafka.common.utils.Utils;

/**
 * A port whose clients are somebody without saying so.
 *
 * Some tests name their clients after the listener that they come by, with a class inside of Kafka.
 * Here each connection to this port is logged in at a listener of the daemon, with a name and a
 * password, and from then on all bytes go through as they are.
 */
public final class LoggedInFront implements AutoCloseable {
    private final ServerSocket listener;
    private final String user;
    private final String password;
    private final Set<Socket> open = ConcurrentHashMap.newKeySet();
    private volatile int daemon;

    /** user, password: who is at the daemon, once it is known where that listens. */
    public LoggedInFront(String user, String password) throws IOException {
        this.listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        this.user = user;
        this.password = password;
    }

    public int port() {
        return listener.getLocalPort();
    }

    /** Take connections, and carry them to this port of the daemon. */
    public void serve(int daemonPort) {
        daemon = daemonPort;
        start(() -> {
            while (true) {
                Socket client = listener.accept();
                start(() -> carry(client));
            }
        });
    }

    private void carry(Socket client) throws IOException {
        open.add(client);
        try (Socket server = new Socket("127.0.0.1", daemon); client) {
            open.add(server);
            client.setTcpNoDelay(true);
            server.setTcpNoDelay(true);
            logIn(server);
            start(() -> pump(server.getInputStream(), client.getOutputStream(), client));
            pump(client.getInputStream(), server.getOutputStream(), server);
            open.remove(server);
        } finally {
            open.remove(client);
        }
    }

    private static void pump(InputStream from, OutputStream to, Socket other) throws IOException {
        try {
            byte[] buffer = new byte[1 << 16];
            for (int count = from.read(buffer); count >= 0; count = from.read(buffer))
                to.write(buffer, 0, count);
        } finally {
            other.close();
        }
    }

    private void logIn(Socket server) throws IOException {
        ask(server, new SaslHandshakeRequest.Builder(
            new SaslHandshakeRequestData().setMechanism("PLAIN")).build((short) 1));
        byte[] secret = ("\0" + user + "\0" + password).getBytes(StandardCharsets.UTF_8);
        ask(server, new SaslAuthenticateRequest.Builder(
            new SaslAuthenticateRequestData().setAuthBytes(secret)).build((short) 1));
    }

    private static void ask(Socket server, AbstractRequest request) throws IOException {
        ApiKeys api = request.apiKey();
        byte[] bytes = Utils.toArray(request.serializeWithHeader(
            new RequestHeader(api, request.version(), "front", 0)));
        DataOutputStream out = new DataOutputStream(server.getOutputStream());
        out.writeInt(bytes.length);
        out.write(bytes);
        out.flush();
        DataInputStream in = new DataInputStream(server.getInputStream());
        byte[] answer = new byte[in.readInt()];
        in.readFully(answer);
        ByteBuffer buffer = ByteBuffer.wrap(answer);
        ResponseHeader.parse(buffer, api.responseHeaderVersion(request.version()));
        AbstractResponse response = AbstractResponse.parseResponse(api, buffer, request.version());
        if (response.errorCounts().keySet().stream().anyMatch(error -> error != Errors.NONE))
            throw new IOException("the login was refused: " + response);
    }

    private interface Work {
        void run() throws IOException;
    }

    private static void start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (IOException ended) {
                // Either side has gone, or the test has ended: the connection is no more.
            }
        }, "front");
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public void close() throws IOException {
        listener.close();
        for (Socket socket : open)
            socket.close();
    }
}
