package kafka.server

import java.io.{BufferedReader, InputStreamReader, OutputStreamWriter}
import java.net.Socket
import java.nio.charset.StandardCharsets
import java.util
import java.util.Properties

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.apache.kafka.clients.admin.{Admin, AdminClientConfig, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion}
import org.apache.kafka.common.network.ListenerName

import scala.collection.mutable
import scala.jdk.CollectionConverters._

/**
 * The daemon that all brokers of a test stand for.
 *
 * It runs while one of them does.  When one ends and others go on, it is ended and started again:
 * so a cluster looks whose other brokers hold the same records.  A process beside this one starts
 * and ends it (kafka.py), asked over a socket by a line of JSON, answered by another.
 */
class SegbrokerCluster(val testName: String) {
  private val running = mutable.Set[Int]()
  private var handle: String = _
  private var isUp = false
  private var ports: Map[String, Int] = Map.empty
  private var pending: Thread = _
  private var fronts: Map[String, LoggedInFront] = Map.empty
  private val password = "of-tests-only"
  private var adminClient: Admin = _
  private var ownClient: Properties = _
  var configs: Map[Int, KafkaConfig] = Map.empty
  /** Who may do everything beside those that the test's brokers name. */
  var superUser = ""
  /** Users who are there from the beginning, with their passwords. */
  var users: Map[String, String] = Map.empty

  def know(config: KafkaConfig): Unit = synchronized {
    configs += config.nodeId -> config
    ReplicaLimit.brokers = configs.size
    ReplicaLimit.defaults = TopicDefaults.of(config)
  }

  def started(broker: Int): Unit = synchronized {
    running += broker
    if (handle == null) {
      val config = configs(broker)
      val principals = DaemonSettings.principalsOf(config)
      fronts = principals.map { case (name, principal) => name -> new LoggedInFront(principal, password) }
      val wanted = new util.HashMap[String, Any](DaemonSettings.of(config))
      wanted.put("fronts", fronts.map { case (name, front) => name -> front.port }.asJava)
      DaemonSecurity.files(config).foreach { case (what, path) => wanted.put(what, path) }
      wanted.put("super_user", superUser)
      val answer = Door.ask(util.Map.of("do", "start", "test", testName, "broker", wanted))
      handle = answer.get("handle").asText
      ports = answer.get("ports").fields().asScala.map(e => e.getKey -> e.getValue.asInt).toMap
      ownClient = new Properties()
      answer.get("client").fields().asScala.foreach(e => ownClient.put(e.getKey, e.getValue.asText))
      isUp = true
      users ++= DaemonSecurity.users(config)
      users ++= principals.values.map(_ -> password)
      users.foreach { case (user, password) => admin.alterUserScramCredentials(util.List.of(
        new UserScramCredentialUpsertion(user,
          new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), password))).all().get() }
      fronts.foreach { case (name, front) => front.serve(ports(name)) }
    } else wake()
  }

  def stopped(broker: Int): Unit = synchronized {
    if (running.remove(broker)) {
      sleep()
      if (running.nonEmpty) {
        pending = new Thread(() => try {
          Thread.sleep(100)
          synchronized { if (running.nonEmpty) wake() }
        } catch { case _: InterruptedException => }, "segbroker-failover")
        pending.setDaemon(true)
        pending.start()
      }
    }
  }

  private def sleep(): Unit = if (isUp) {
    isUp = false
    Door.ask(util.Map.of("do", "stop", "handle", handle))
  }

  private def wake(): Unit = if (!isUp) {
    Door.ask(util.Map.of("do", "again", "handle", handle))
    isUp = true
  }

  def runs(broker: Int): Boolean = synchronized { running.contains(broker) }

  def port(name: ListenerName): Int = fronts.get(name.value).map(_.port).getOrElse(ports(name.value))

  /** A client of ours, that may do everything. */
  def admin: Admin = synchronized {
    if (adminClient == null) {
      val props = new Properties()
      props.putAll(ownClient)
      props.put(AdminClientConfig.CLIENT_ID_CONFIG, "harness")
      adminClient = Admin.create(props)
    }
    adminClient
  }

  /** How often the daemon's log tells of an event. */
  def logged(event: String): Long =
    Door.ask(util.Map.of("do", "count", "handle", handle, "event", event)).get("count").asLong

  def end(): Unit = synchronized {
    running.clear()
    fronts.values.foreach(_.close())
    if (pending != null) { pending.interrupt(); pending = null }
    if (adminClient != null) { adminClient.close(java.time.Duration.ZERO); adminClient = null }
    if (handle != null) {
      isUp = false
      Door.ask(util.Map.of("do", "end", "handle", handle))
      handle = null
    }
  }
}

/** The other process. */
object Door {
  private val mapper = new ObjectMapper()

  def ask(what: util.Map[String, _]): JsonNode = {
    val socket = new Socket("127.0.0.1", Integer.getInteger("segbroker.door"))
    try {
      val out = new OutputStreamWriter(socket.getOutputStream, StandardCharsets.UTF_8)
      out.write(mapper.writeValueAsString(what) + "\n")
      out.flush()
      val in = new BufferedReader(new InputStreamReader(socket.getInputStream, StandardCharsets.UTF_8))
      val answer = mapper.readTree(in.readLine())
      if (answer.has("error")) throw new IllegalStateException(answer.get("error").asText)
      answer
    } finally socket.close()
  }
}
