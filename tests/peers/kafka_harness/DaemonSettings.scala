package kafka.server

import java.net.InetAddress
import java.util

import org.apache.kafka.common.config.internals.BrokerSecurityConfigs
import org.apache.kafka.common.security.auth.{KafkaPrincipal, KafkaPrincipalBuilder, PlaintextAuthenticationContext, SecurityProtocol}
import org.apache.kafka.common.utils.Utils
import org.apache.kafka.server.config.{ServerConfigs, ServerTopicConfigSynonyms}

import scala.jdk.CollectionConverters._

/** What a test has configured, as the other process is told it. */
object DaemonSettings {
  def authorizerOf(config: KafkaConfig): String =
    Option(config.originals.get(ServerConfigs.AUTHORIZER_CLASS_NAME_CONFIG)).map(_.toString).getOrElse("")

  /** Who comes by which listener, where a class of the test's says so and nobody shows anything. */
  def principalsOf(config: KafkaConfig): Map[String, String] =
    config.effectiveAdvertisedBrokerListeners.filter(_.securityProtocol == SecurityProtocol.PLAINTEXT).flatMap { endPoint =>
      val name = endPoint.listenerName
      val key = BrokerSecurityConfigs.PRINCIPAL_BUILDER_CLASS_CONFIG
      Option(config.originals.get(name.configPrefix + key)).orElse(Option(config.originals.get(key))).map { builder =>
        val context = new PlaintextAuthenticationContext(InetAddress.getLoopbackAddress, name.value)
        val principal = Utils.newInstance(builder.toString, classOf[KafkaPrincipalBuilder]).build(context)
        if (principal.getPrincipalType != KafkaPrincipal.USER_TYPE)
          throw new UnsupportedOperationException(s"$principal is no user, and there are no others here")
        name.value -> principal.getName
      }
    }.toMap

  def of(config: KafkaConfig): util.Map[String, _] = {
    val properties = new util.HashMap[String, String]()
    config.originals.forEach { (key, value) =>
      if (value != null) properties.put(key, value match {
        case several: util.List[_] => several.asScala.mkString(",")
        case one => one.toString
      })
    }
    val listeners = config.effectiveAdvertisedBrokerListeners.map { endPoint =>
      util.Map.of("name", endPoint.listenerName.value, "protocol", endPoint.securityProtocol.name)
    }
    util.Map.of("properties", properties, "listeners", listeners.asJava, "node", config.nodeId)
  }
}

/** Kafka's defaults of topics, where the test has set them and the daemon has no setting for them. */
object TopicDefaults {
  // Set in every test, for the sake of Kafka's own speed.
  private val ofTheHarness = Set("file.delete.delay.ms", "min.insync.replicas")
  private val ofTheDaemon = Set(
    "compression.type", "log.cleaner.delete.retention.ms", "log.cleaner.max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio", "log.cleaner.min.compaction.lag.ms", "log.cleanup.policy",
    "log.message.timestamp.after.max.ms", "log.message.timestamp.before.max.ms", "log.message.timestamp.type",
    "log.retention.bytes", "log.retention.ms", "log.roll.ms", "log.segment.bytes", "message.max.bytes",
  )

  def of(config: KafkaConfig): util.Map[String, String] = {
    val wanted = new util.HashMap[String, String]()
    ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach { (topicKey, synonyms) =>
      if (!ofTheHarness.contains(topicKey))
        synonyms.asScala.find(synonym => config.originals.containsKey(synonym.name)).filterNot { synonym =>
          ofTheDaemon.contains(synonym.name)
        }.foreach { synonym =>
          wanted.put(topicKey, synonym.converter.apply(config.originals.get(synonym.name).toString))
        }
    }
    wanted
  }
}
