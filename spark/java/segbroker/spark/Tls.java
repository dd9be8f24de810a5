package segbroker.spark;

import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;

/**
 * TLS over a connected socket, by the PEM file of the authorities that are trusted.
 *
 * <p>The Python source sends a query here only where it names that file and has no certificate of its
 * own: what "the authorities of the system" are Java and Python see differently.
 */
final class Tls {
    /** What was read, and of which state of the file: one that was replaced is read again. */
    private record Loaded(List<Object> stamp, SSLContext context) {}

    private static final Map<String, Loaded> CONTEXTS = new ConcurrentHashMap<>();

    private Tls() {}

    /** The socket with TLS on it, after the handshake. */
    static Socket wrapped(Socket plain, String host, ScanTask.Security security)
            throws IOException, GeneralSecurityException {
        SSLContext trusting = trusting(security.caFile());
        SSLSocket socket =
                (SSLSocket)
                        trusting.getSocketFactory().createSocket(plain, host, plain.getPort(), true);
        SSLParameters parameters = socket.getSSLParameters();
        parameters.setProtocols(new String[] {"TLSv1.3", "TLSv1.2"});
        if (security.verifyHost()) {
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
        }
        socket.setSSLParameters(parameters);
        try {
            socket.startHandshake();
        } catch (IOException exc) {
            socket.close();
            throw exc;
        }
        return socket;
    }

    private static SSLContext trusting(String caFile) throws GeneralSecurityException {
        List<Object> stamp;
        try {
            BasicFileAttributes file = Files.readAttributes(Path.of(caFile), BasicFileAttributes.class);
            stamp = Arrays.asList(file.lastModifiedTime(), file.size(), file.fileKey());
        } catch (IOException exc) {
            throw new GeneralSecurityException("the authorities cannot be read: " + exc, exc);
        }
        Loaded loaded = CONTEXTS.get(caFile);
        if (loaded == null || !loaded.stamp().equals(stamp)) {
            loaded = new Loaded(stamp, context(caFile));
            CONTEXTS.put(caFile, loaded);
        }
        return loaded.context();
    }

    private static SSLContext context(String caFile) throws GeneralSecurityException {
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        try (InputStream file = Files.newInputStream(Path.of(caFile))) {
            trusted.load(null, null);
            int count = 0;
            for (Certificate each : CertificateFactory.getInstance("X.509").generateCertificates(file)) {
                trusted.setCertificateEntry("ca" + count++, each);
            }
        } catch (IOException exc) {
            // Not of the network: trying again would not help.
            throw new GeneralSecurityException("the authorities cannot be read: " + exc, exc);
        }
        TrustManagerFactory managers =
                TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(trusted);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        return context;
    }
}
