package kafka.server

import java.util
import java.util.Optional

import kafka.network.SocketServer
import kafka.utils.TestUtils
import org.apache.kafka.clients.admin.{Admin, NewTopic}
import org.apache.kafka.clients.consumer.{Consumer, ConsumerConfig, GroupProtocol, KafkaConsumer}
import org.apache.kafka.clients.producer.{KafkaProducer, Producer}
import org.apache.kafka.common.acl.{AccessControlEntry, AclBindingFilter}
import org.apache.kafka.common.network.ListenerName
import org.apache.kafka.common.security.auth.SecurityProtocol
import org.apache.kafka.common.serialization.{ByteArrayDeserializer, ByteArraySerializer}
import org.apache.kafka.common.test.ClusterInstance
import org.apache.kafka.common.test.api.{ClusterConfig, Type}
import org.apache.kafka.common.utils.Time
import org.apache.kafka.server.fault.MockFaultHandler

import scala.jdk.CollectionConverters._

/** A daemon as what tests call a cluster. */
class SegbrokerInstance(
  name: String,
  wanted: ClusterConfig
) extends ClusterInstance {
  private val protocol = wanted.brokerSecurityProtocol
  private val controllerId = Integer.valueOf(3000)
  private val cluster = new SegbrokerCluster(name)
  private val members = new util.TreeMap[Integer, KafkaBroker]()
  private lazy val controller = SegbrokerController.of(cluster)

  def start(): Unit = {
    val faults = new QuorumTestHarnessFaultHandlerFactory(new MockFaultHandler(name))
    for (id <- 0 until wanted.numBrokers) {
      val given = TestUtils.createBrokerConfig(id, interBrokerSecurityProtocol = Some(protocol))
      if (protocol == SecurityProtocol.SASL_PLAINTEXT) given.putAll(SegbrokerInstance.ofLogins)
      given.putAll(wanted.serverProperties)
      given.putAll(wanted.perServerOverrideProperties.getOrDefault(id, util.Map.of()))
      members.put(id, SegbrokerBroker.of(KafkaConfig.fromProps(given), Time.SYSTEM, cluster, faults))
    }
    members.values.forEach(_.startup())
  }

  def stop(): Unit = cluster.end()

  override def brokers: util.Map[Integer, KafkaBroker] = members
  override def controllers: util.Map[Integer, ControllerServer] = util.Map.of(controllerId, controller)
  override def aliveBrokers: util.Map[Integer, KafkaBroker] =
    members.asScala.filter { case (id, _) => cluster.runs(id) }.asJava
  override def brokerIds: util.Set[Integer] = members.keySet
  override def controllerIds: util.Set[Integer] = util.Set.of(controllerId)
  override def config: ClusterConfig = wanted
  override def `type`: Type = Type.KRAFT
  override def clusterId: String = cluster.admin.describeCluster().clusterId().get()
  override def bootstrapServers: String = s"localhost:${cluster.port(clientListener)}"
  override def bootstrapControllers: String =
    throw new UnsupportedOperationException("there is no controller beside the broker")
  override def supportedGroupProtocols: util.Set[GroupProtocol] =
    util.Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER)
  override def clientListener: ListenerName = ListenerName.forSecurityProtocol(protocol)
  override def controllerListenerName: Optional[ListenerName] = Optional.empty()
  override def brokerSocketServers: util.Collection[SocketServer] =
    members.values.asScala.map(_.socketServer).toList.asJava
  override def anyBrokerSocketServer: SocketServer = members.firstEntry.getValue.socketServer

  private def completed(configs: util.Map[String, Object]): util.Map[String, Object] = {
    val all = new util.HashMap[String, Object](configs)
    all.putIfAbsent("bootstrap.servers", bootstrapServers)
    for (side <- Seq("key", "value")) {
      all.putIfAbsent(s"$side.serializer", classOf[ByteArraySerializer].getName)
      all.putIfAbsent(s"$side.deserializer", classOf[ByteArrayDeserializer].getName)
    }
    all
  }

  override def admin: Admin = admin(util.Map.of())
  override def admin(configs: util.Map[String, Object]): Admin = Admin.create(completed(configs))
  override def producer[K, V](): Producer[K, V] = producer(util.Map.of[String, Object]())
  override def producer[K, V](configs: util.Map[String, Object]): Producer[K, V] =
    new KafkaProducer[K, V](completed(configs))
  override def consumer[K, V](): Consumer[K, V] = consumer(util.Map.of[String, Object]())
  override def consumer[K, V](configs: util.Map[String, Object]): Consumer[K, V] = {
    val all = completed(configs)
    all.putIfAbsent(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest")
    all.putIfAbsent(ConsumerConfig.GROUP_ID_CONFIG, s"group_$name")
    new KafkaConsumer[K, V](all)
  }

  override def createTopic(topic: String, partitions: Int, replicas: Short): Unit = {
    cluster.admin.createTopics(util.Set.of(new NewTopic(topic, partitions, replicas))).all().get()
    waitForTopic(topic, partitions)
  }

  override def waitForTopic(topic: String, partitions: Int): Unit =
    TestUtils.waitUntilTrue(
      () => members.firstEntry.getValue.metadataCache.numPartitions(topic).getOrElse(0) == partitions,
      s"$topic has not got $partitions partitions")

  override def waitTopicDeletion(topic: String): Unit = waitForTopic(topic, 0)

  override def waitForReadyBrokers(): Unit = {}

  override def waitAcls(filter: AclBindingFilter, entries: util.Collection[AccessControlEntry]): Unit =
    TestUtils.waitUntilTrue(
      () => cluster.admin.describeAcls(filter).values().get().asScala.map(_.entry).toSet == entries.asScala.toSet,
      s"there are other rules than $entries")

  override def shutdownBroker(id: Int): Unit = members.get(id).shutdown()
  override def startBroker(id: Int): Unit = members.get(id).startup()
}

object SegbrokerInstance {
  private val users = Map("plain-admin" -> "plain-admin-secret", "plain-user1" -> "plain-user1-secret")

  /** What Kafka's harness sets where clients log in: two users, of whom one may do everything. */
  private val ofLogins: util.Map[String, String] = util.Map.of(
    "sasl.enabled.mechanisms", "PLAIN",
    "sasl.mechanism.inter.broker.protocol", "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config",
    users.map { case (user, password) => s"""user_$user="$password"""" }
      .mkString("org.apache.kafka.common.security.plain.PlainLoginModule required ", " ", ";"),
    "authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users", "User:plain-admin")
}
