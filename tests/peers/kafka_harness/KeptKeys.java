package kafka.server;

import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.KeyPairGeneratorSpi;
import java.security.NoSuchAlgorithmException;
import java.security.Provider;
import java.security.ProviderException;
import java.security.SecureRandom;
import java.security.Security;
import java.util.ArrayList;
import java.util.List;

/**
 * A few pairs of RSA keys, handed out in turn: a test makes six, and each takes a second or more
 * of a machine that compiles little.  No two that are used at the same time are the same.
 */
public final class KeptKeys extends Provider {
    private static final int KEPT = 12;
    private static final List<KeyPair> PAIRS = new ArrayList<>();
    private static int given = 0;

    private KeptKeys() {
        super("KeptKeys", "1", "pairs of keys that tests use again");
        put("KeyPairGenerator.RSA", Generator.class.getName());
    }

    public static void install() {
        Security.insertProviderAt(new KeptKeys(), 1);
    }

    private static synchronized KeyPair next(int bits) {
        int place = given++ % KEPT;
        if (place == PAIRS.size()) {
            try {
                KeyPairGenerator maker = KeyPairGenerator.getInstance("RSA", "SunRsaSign");
                maker.initialize(bits);
                PAIRS.add(maker.generateKeyPair());
            } catch (NoSuchAlgorithmException | java.security.NoSuchProviderException e) {
                throw new ProviderException(e);
            }
        }
        return PAIRS.get(place);
    }

    /** Made by Java's security framework. */
    public static final class Generator extends KeyPairGeneratorSpi {
        private int bits = 2048;

        @Override
        public void initialize(int size, SecureRandom random) {
            bits = size;
        }

        @Override
        public KeyPair generateKeyPair() {
            return next(bits);
        }
    }
}
