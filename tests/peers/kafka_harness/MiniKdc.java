package kafka.security.minikdc;

import java.io.File;
import java.util.List;
import java.util.Properties;

/**
 * In the place of Kafka's class of this name: no Kerberos server.  A daemon offers no such login,
 * so who tries it fails; the other tests of a class that sets it up need none.
 */
public class MiniKdc {
    public MiniKdc(Properties config, File workDir) { }

    public static Properties createConfig() {
        return new Properties();
    }

    public void start() { }

    public void stop() { }

    public void createPrincipal(File keytabFile, List<String> principals) { }
}
