package kafka.server

import java.util
import java.util.Properties
import java.util.concurrent.CompletableFuture
import java.util.Locale
import java.net.InetSocketAddress
import java.util.stream.Stream
import javax.security.auth.login.Configuration

import kafka.api.IntegrationTestHarness
import kafka.raft.KafkaRaftManager
import kafka.utils.{Logging, TestInfoUtils, TestUtils}
import org.apache.kafka.clients.admin.AdminClientUnitTestEnv
import org.apache.kafka.clients.consumer.GroupProtocol
import org.apache.kafka.clients.consumer.internals.AbstractCoordinator
import org.apache.kafka.clients.producer.KafkaProducer
import org.apache.kafka.common.security.JaasUtils
import org.apache.kafka.common.security.auth.SecurityProtocol
import org.apache.kafka.common.utils.{Exit, Time}
import org.apache.kafka.metadata.storage.Formatter
import org.apache.kafka.server.common.{ApiMessageAndVersion, MetadataVersion}
import org.apache.kafka.server.fault.{FaultHandler, MockFaultHandler}
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.{AfterAll, AfterEach, BeforeAll, BeforeEach, Tag, TestInfo}
import org.junit.jupiter.params.provider.Arguments
import org.mockito.Mockito

import scala.collection.Seq
import scala.jdk.CollectionConverters._
import scala.jdk.OptionConverters._

/**
 * In the place of Kafka's class of this name: what it gives is a segbroker.
 *
 * Every broker that a test has configured is a `SegbrokerBroker`, and all of one test stand for the
 * same daemon.  There is no controller: whoever asks one is told by the daemon, or not at all.
 */
@Tag("integration")
abstract class QuorumTestHarness extends Logging {

  protected val controllerListenerSecurityProtocol: SecurityProtocol = SecurityProtocol.PLAINTEXT

  protected def kraftControllerConfigs(testInfo: TestInfo): Seq[Properties] = Seq(new Properties())

  protected def metadataVersion: MetadataVersion = MetadataVersion.latestTesting()

  private var testInfo: TestInfo = _
  protected var implementation: QuorumImplementation = _

  def isShareGroupTest(): Boolean = TestInfoUtils.isShareGroupTest(testInfo)

  def maybeGroupProtocolSpecified(): Option[GroupProtocol] =
    TestInfoUtils.maybeGroupProtocolSpecified(testInfo)

  def groupProtocolFromTestParameters(): GroupProtocol =
    maybeGroupProtocolSpecified().getOrElse(
      throw new IllegalStateException("Please specify the \"groupProtocol\" parameter when writing the test"))

  private def quorum(): SegbrokerQuorum = implementation.asInstanceOf[SegbrokerQuorum]

  def controllerServer: ControllerServer = quorum().controllerServer

  /** None of them: what waits for each controller waits for nothing. */
  def controllerServers: Seq[ControllerServer] = Seq.empty

  val faultHandlerFactory =
    new QuorumTestHarnessFaultHandlerFactory(new MockFaultHandler("quorumTestHarnessFaultHandler"))

  val faultHandler: MockFaultHandler = faultHandlerFactory.faultHandler

  @BeforeEach
  def setUp(testInfo: TestInfo): Unit = {
    this.testInfo = testInfo
    for (procedure <- Seq("exit", "halt")) {
      val raise: Exit.Procedure = (code, message) => {
        tearDown()
        throw new RuntimeException(s"$procedure($code, $message) called!")
      }
      if (procedure == "exit") Exit.setExitProcedure(raise) else Exit.setHaltProcedure(raise)
    }
    val method = testInfo.getTestMethod.toScala.map(_.getName).getOrElse("unspecified")
    val name = testInfo.getTestClass.toScala.map(_.getSimpleName).getOrElse("") + "." + method
    val isVersion2 = TestInfoUtils.isTransactionV2Enabled(testInfo)
    implementation = new SegbrokerQuorum(new SegbrokerCluster(name), faultHandlerFactory, isVersion2)
  }

  def createBroker(
    config: KafkaConfig,
    time: Time = Time.SYSTEM,
    startup: Boolean = true,
    threadNamePrefix: Option[String] = None
  ): KafkaBroker = {
    val cluster = quorum().cluster
    this match {
      case harness: IntegrationTestHarness =>
        cluster.superUser = DaemonSecurity.superUser(config, harness.superuserClientConfig).getOrElse("")
      case _ =>
    }
    val first = new FirstUsers()
    addFormatterSettings(first)
    cluster.users ++= first.passwords
    implementation.createBroker(config, time, startup, threadNamePrefix)
  }

  def shutdownKRaftController(): Unit =
    throw new UnsupportedOperationException("there is no controller beside the broker")

  def addFormatterSettings(formatter: Formatter): Unit = {}

  protected def extraControllerSecurityProtocols(): Seq[SecurityProtocol] = Seq.empty

  @AfterEach
  def tearDown(): Unit = {
    if (implementation != null) implementation.shutdown()
    Exit.resetExitProcedure()
    Exit.resetHaltProcedure()
    TestUtils.clearYammerMetrics()
    System.clearProperty(JaasUtils.JAVA_LOGIN_CONFIG_PARAM)
    Configuration.setConfiguration(null)
    faultHandler.maybeRethrowFirstException()
  }
}

object QuorumTestHarness {

  @BeforeAll
  def setUpClass(): Unit = {
    KeptKeys.install()
    verifyNoUnexpectedThreads("@BeforeAll")
  }

  @AfterAll
  def tearDownClass(): Unit = verifyNoUnexpectedThreads("@AfterAll")

  def verifyNoUnexpectedThreads(context: String): Unit = {
    val unexpectedThreadNames = Set(
      KafkaProducer.NETWORK_THREAD_PREFIX,
      AdminClientUnitTestEnv.kafkaAdminClientNetworkThreadPrefix(),
      AbstractCoordinator.HEARTBEAT_THREAD_PREFIX,
    )

    def unexpectedThreads: Set[String] =
      Thread.getAllStackTraces.keySet.asScala.map(_.getName)
        .filter(name => unexpectedThreadNames.exists(name.contains(_))).toSet

    val (unexpected, _) = TestUtils.computeUntilTrue(unexpectedThreads)(_.isEmpty)
    assertTrue(unexpected.isEmpty,
      s"Found ${unexpected.size} unexpected threads during $context: ${unexpected.mkString("`", ",", "`")}")
  }

  private def named(protocols: GroupProtocol*): Stream[Arguments] =
    protocols.map(protocol => Arguments.of("kraft", protocol.name.toLowerCase(Locale.ROOT))).asJava.stream()

  def getTestQuorumAndGroupProtocolParametersAll: Stream[Arguments] =
    named(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER)

  def getTestQuorumAndGroupProtocolParametersClassicGroupProtocolOnly: Stream[Arguments] =
    named(GroupProtocol.CLASSIC)

  def getTestQuorumAndGroupProtocolParametersConsumerGroupProtocolOnly: Stream[Arguments] =
    named(GroupProtocol.CONSUMER)

  def getTestQuorumAndGroupProtocolParametersClassicGroupProtocolOnly_ZK_implicit: Stream[Arguments] =
    named(GroupProtocol.CLASSIC)
}

/** All brokers of one test. */
class SegbrokerQuorum(
  val cluster: SegbrokerCluster,
  faultHandlerFactory: QuorumTestHarnessFaultHandlerFactory,
  isTransactionVersion2: Boolean
) extends QuorumImplementation {

  /** Asked only for topics' ids, and for how far it has come: never behind. */
  lazy val controllerServer: ControllerServer = SegbrokerController.of(cluster)

  override def createBroker(
    config: KafkaConfig, time: Time, startup: Boolean, threadNamePrefix: Option[String]
  ): KafkaBroker = {
    val broker = SegbrokerBroker.of(config, time, cluster, faultHandlerFactory)
    if (startup) broker.startup()
    broker
  }

  override def shutdown(): Unit = cluster.end()
}
