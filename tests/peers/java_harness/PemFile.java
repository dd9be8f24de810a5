package segbroker;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.util.Base64;
import java.util.Map;
import org.apache.kafka.common.config.types.Password;

/** The key store that a test has made for its broker, as a daemon reads it: a file with key and certificates. */
public final class PemFile {
    private static final Base64.Encoder LINES = Base64.getMimeEncoder(64, new byte[] {'\n'});

    private PemFile() { }

    /** broker: its settings, by Kafka's names. */
    public static Path of(Map<?, ?> broker) throws IOException {
        char[] password = ((Password) broker.get("ssl.keystore.password")).value().toCharArray();
        char[] keyPassword = ((Password) broker.get("ssl.key.password")).value().toCharArray();
        Path pem = Files.createTempFile("broker", ".pem");
        try (InputStream file = Files.newInputStream(Path.of(broker.get("ssl.keystore.location").toString()))) {
            KeyStore store = KeyStore.getInstance(broker.get("ssl.keystore.type").toString());
            store.load(file, password);
            String name = store.aliases().nextElement();
            StringBuilder text = new StringBuilder(block("PRIVATE KEY", store.getKey(name, keyPassword).getEncoded()));
            for (Certificate certificate : store.getCertificateChain(name)) {
                text.append(block("CERTIFICATE", certificate.getEncoded()));
            }
            return Files.writeString(pem, text, StandardCharsets.US_ASCII);
        } catch (GeneralSecurityException e) {
            throw new IOException(e);
        }
    }

    private static String block(String what, byte[] encoded) {
        return "-----BEGIN " + what + "-----\n" + LINES.encodeToString(encoded) + "\n-----END " + what + "-----\n";
    }
}
