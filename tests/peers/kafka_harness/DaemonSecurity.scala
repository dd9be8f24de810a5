package kafka.server

import java.net.InetAddress
import java.nio.charset.StandardCharsets
import java.nio.file.{Files, Path}
import java.security.KeyStore
import java.util
import java.util.Properties
import javax.net.ssl.SSLSession

import org.apache.kafka.common.config.SslConfigs
import org.apache.kafka.common.config.internals.BrokerSecurityConfigs
import org.apache.kafka.common.config.types.Password
import org.apache.kafka.common.network.ListenerName
import org.apache.kafka.common.security.JaasContext
import org.apache.kafka.common.security.auth.{KafkaPrincipalBuilder, SecurityProtocol, SslAuthenticationContext}
import org.apache.kafka.common.security.ssl.DefaultSslEngineFactory
import org.apache.kafka.common.utils.Utils
import org.mockito.Mockito

import scala.jdk.CollectionConverters._

/**
 * What a test has made to protect its brokers, in the forms that a daemon has: files with keys and
 * certificates for Kafka's stores of them, users for those that a login module lists.
 */
object DaemonSecurity {
  private val lines = util.Base64.getMimeEncoder(64, "\n".getBytes)

  private def block(what: String, encoded: Array[Byte]): String =
    s"-----BEGIN $what-----\n${lines.encodeToString(encoded)}\n-----END $what-----\n"

  private def written(text: String): Path =
    Files.writeString(Files.createTempFile("broker", ".pem"), text, StandardCharsets.US_ASCII)

  private def isTls(protocol: SecurityProtocol): Boolean =
    protocol == SecurityProtocol.SSL || protocol == SecurityProtocol.SASL_SSL

  private def isLogin(protocol: SecurityProtocol): Boolean =
    protocol == SecurityProtocol.SASL_PLAINTEXT || protocol == SecurityProtocol.SASL_SSL

  /** Paths of the broker's certificate with its key, and of whom it trusts, by the words of the door. */
  def files(config: KafkaConfig): Map[String, String] =
    config.effectiveAdvertisedBrokerListeners.find(endPoint => isTls(endPoint.securityProtocol)).map { endPoint =>
      val settings = config.valuesWithPrefixOverride(endPoint.listenerName.configPrefix)
      val stores = new DefaultSslEngineFactory()
      stores.configure(settings)
      val password = Option(settings.get(SslConfigs.SSL_KEY_PASSWORD_CONFIG))
        .map(_.asInstanceOf[Password].value.toCharArray).orNull
      val store = stores.keystore()
      val name = store.aliases().nextElement()
      val pem = block("PRIVATE KEY", store.getKey(name, password).getEncoded) +
        store.getCertificateChain(name).map(one => block("CERTIFICATE", one.getEncoded)).mkString
      val trusted = Option(stores.truststore()).map(trust => trust.aliases().asScala
        .map(alias => block("CERTIFICATE", trust.getCertificate(alias).getEncoded)).mkString)
      Map("pem" -> written(pem).toString) ++ trusted.map(text => "ca" -> written(text).toString)
    }.getOrElse(Map.empty)

  /** Names and passwords that a listener's login module for PLAIN knows. */
  def users(config: KafkaConfig): Map[String, String] =
    config.effectiveAdvertisedBrokerListeners.filter(endPoint => isLogin(endPoint.securityProtocol)).flatMap { endPoint =>
      val settings = config.valuesWithPrefixOverride(endPoint.listenerName.configPrefix)
      val mechanisms = settings.get(BrokerSecurityConfigs.SASL_ENABLED_MECHANISMS_CONFIG).asInstanceOf[util.List[String]]
      if (mechanisms.contains("PLAIN")) usersOf(endPoint.listenerName, settings) else Map.empty[String, String]
    }.toMap

  private def usersOf(listener: ListenerName, settings: util.Map[String, _]): Map[String, String] = {
    val known = JaasContext.loadServerContext(listener, "PLAIN", settings).configurationEntries.asScala
    known.flatMap(_.getOptions.asScala.collect {
      case (key, value) if key.startsWith("user_") => key.stripPrefix("user_") -> value.toString
    }).toMap
  }

  /**
   * The name on the certificate of a test's super user, where a class of the test's gives it a
   * shorter one: to a daemon the certificate's is the name.
   */
  def superUser(config: KafkaConfig, client: Properties): Option[String] =
    for {
      builder <- Option(config.originals.get(BrokerSecurityConfigs.PRINCIPAL_BUILDER_CLASS_CONFIG))
      place <- Option(client.get(SslConfigs.SSL_KEYSTORE_LOCATION_CONFIG))
      endPoint <- config.effectiveAdvertisedBrokerListeners.find(_.securityProtocol == SecurityProtocol.SSL)
    } yield {
      val store = KeyStore.getInstance("JKS")
      val password = client.get(SslConfigs.SSL_KEYSTORE_PASSWORD_CONFIG).asInstanceOf[Password].value
      val in = Files.newInputStream(Path.of(place.toString))
      try store.load(in, password.toCharArray) finally in.close()
      val certificate = store.getCertificate(store.aliases().nextElement()).asInstanceOf[java.security.cert.X509Certificate]
      val session = Mockito.mock(classOf[SSLSession])
      Mockito.when(session.getPeerPrincipal).thenReturn(certificate.getSubjectX500Principal)
      val context = new SslAuthenticationContext(session, InetAddress.getLoopbackAddress, endPoint.listenerName.value)
      val name = Utils.newInstance(builder.toString, classOf[KafkaPrincipalBuilder]).build(context)
      val supers = Option(config.originals.get("super.users")).map(_.toString).getOrElse("").split(";")
      if (supers.contains(name.toString)) s"User:${certificate.getSubjectX500Principal.getName}" else ""
    }
}
