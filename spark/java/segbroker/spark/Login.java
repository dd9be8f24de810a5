package segbroker.spark;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * A login on one connection, without the connection: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512.
 *
 * <p>begin() gives the first message, answer(...) the next one, or null: done. With SCRAM (RFC 5802)
 * the broker has to prove that it knows the password, too. Passwords are their UTF-8 bytes, without
 * SASLprep, as everywhere in this project. Salted passwords are kept: they take milliseconds.
 */
final class Login {
    private static final int ITERATIONS_MIN = 4_096;
    private static final int ITERATIONS_TAKEN_MAX = 1 << 20;
    private static final int NONCE_SIZE = 18;
    private static final int SALTED_COUNT_MAX = 16;
    private static final SecureRandom RANDOM = new SecureRandom();
    private static final Map<String, byte[]> SALTED = new ConcurrentHashMap<>();

    private final ScanTask.Security security;
    private final boolean isPlain;
    private String nonce;
    private String bare;
    private byte[] verifier;

    Login(ScanTask.Security security) {
        this.security = security;
        isPlain = security.mechanism().equals("PLAIN");
    }

    byte[] begin() {
        if (isPlain) {
            return utf8("\0" + security.user() + "\0" + security.password());
        }
        byte[] random = new byte[NONCE_SIZE];
        RANDOM.nextBytes(random);
        nonce = Base64.getEncoder().encodeToString(random);
        bare = "n=" + security.user().replace("=", "=3D").replace(",", "=2C") + ",r=" + nonce;
        return utf8("n,," + bare);
    }

    /** The next message, or null. GeneralSecurityException: it is not an answer, or not proven. */
    byte[] answer(byte[] message) throws GeneralSecurityException {
        if (isPlain) {
            return null;
        }
        String text = new String(message, StandardCharsets.UTF_8);
        if (verifier == null) {
            return proof(text);
        }
        String proven = attributes(text).get("v");
        if (proven == null || !MessageDigest.isEqual(verifier, decoded(proven))) {
            throw new GeneralSecurityException(
                    "the broker has not proven that it knows the password of '"
                            + security.user()
                            + "'; it may not be the one that it should be");
        }
        return null;
    }

    private byte[] proof(String challenge) throws GeneralSecurityException {
        Map<String, String> attributes = attributes(challenge);
        String joined = attributes.get("r");
        String salt = attributes.get("s");
        String iterations = attributes.get("i");
        if (joined == null || salt == null || iterations == null) {
            throw new GeneralSecurityException("a SCRAM challenge without nonce, salt and iterations");
        }
        if (!joined.startsWith(nonce) || joined.length() <= nonce.length()) {
            throw new GeneralSecurityException("a SCRAM challenge to another nonce than ours");
        }
        int count = iterations.matches("[0-9]{1,9}") ? Integer.parseInt(iterations) : 0;
        if (count < ITERATIONS_MIN || count > ITERATIONS_TAKEN_MAX) {
            throw new GeneralSecurityException("a SCRAM challenge of " + iterations + " iterations");
        }
        byte[] salted = salted(decoded(salt), count);
        String withoutProof = "c=" + Base64.getEncoder().encodeToString(utf8("n,,")) + ",r=" + joined;
        byte[] signed = utf8(bare + "," + challenge + "," + withoutProof);
        byte[] clientKey = hmac(salted, utf8("Client Key"));
        byte[] storedKey = MessageDigest.getInstance(hash()).digest(clientKey);
        byte[] proof = hmac(storedKey, signed);
        for (int n = 0; n < proof.length; n++) {
            proof[n] ^= clientKey[n];
        }
        verifier = hmac(hmac(salted, utf8("Server Key")), signed);
        return utf8(withoutProof + ",p=" + Base64.getEncoder().encodeToString(proof));
    }

    /** PBKDF2 over the bytes of the password; Java's own takes characters and is not used. */
    private byte[] salted(byte[] salt, int iterations) throws GeneralSecurityException {
        String key =
                String.join(
                        "\0",
                        security.mechanism(),
                        security.user(),
                        security.password(),
                        Base64.getEncoder().encodeToString(salt),
                        "" + iterations);
        byte[] known = SALTED.get(key);
        if (known != null) {
            return known;
        }
        Mac mac = mac(utf8(security.password()));
        mac.update(salt);
        byte[] block = mac.doFinal(new byte[] {0, 0, 0, 1});
        byte[] salted = block.clone();
        for (int n = 1; n < iterations; n++) {
            block = mac.doFinal(block);
            for (int i = 0; i < salted.length; i++) {
                salted[i] ^= block[i];
            }
        }
        if (SALTED.size() >= SALTED_COUNT_MAX) {
            SALTED.clear();
        }
        SALTED.put(key, salted);
        return salted;
    }

    private String hash() {
        return security.mechanism().substring("SCRAM-".length());
    }

    private Mac mac(byte[] key) throws GeneralSecurityException {
        String name = "Hmac" + hash().replace("-", "");
        Mac mac = Mac.getInstance(name);
        mac.init(new SecretKeySpec(key, name));
        return mac;
    }

    private byte[] hmac(byte[] key, byte[] data) throws GeneralSecurityException {
        return mac(key).doFinal(data);
    }

    private static Map<String, String> attributes(String message) {
        Map<String, String> found = new HashMap<>();
        for (String part : message.split(",")) {
            int equals = part.indexOf('=');
            if (equals == 1) {
                found.putIfAbsent(part.substring(0, 1), part.substring(2));
            }
        }
        return found;
    }

    private static byte[] decoded(String text) throws GeneralSecurityException {
        try {
            return Base64.getDecoder().decode(text);
        } catch (IllegalArgumentException exc) {
            throw new GeneralSecurityException("a SCRAM message with broken base64", exc);
        }
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
