package kafka.server

import java.lang.reflect.{InvocationHandler, Method, Proxy}
import java.net.InetSocketAddress
import java.time.Duration
import java.util
import java.util.concurrent.CompletableFuture
import java.util.{OptionalInt, Properties}

import kafka.network.SocketServer
import kafka.raft.KafkaRaftManager
import org.apache.kafka.common.Uuid
import org.apache.kafka.common.metrics.Metrics
import org.apache.kafka.common.network.ListenerName
import org.apache.kafka.common.utils.Time
import org.apache.kafka.controller.{Controller, ResultOrError}
import org.apache.kafka.coordinator.group.GroupCoordinator
import org.apache.kafka.metadata.BrokerState
import org.apache.kafka.metadata.properties.{MetaProperties, MetaPropertiesEnsemble, MetaPropertiesVersion}
import org.apache.kafka.raft.ReplicatedLog
import org.apache.kafka.server.ServerSocketFactory
import org.apache.kafka.server.common.{ApiMessageAndVersion, MetadataVersion}
import org.apache.kafka.raft.LogOffsetMetadata
import org.mockito.{ArgumentMatchers, Mockito}
import org.mockito.invocation.InvocationOnMock
import org.mockito.stubbing.Answer

/**
 * One of a test's brokers.
 *
 * It has the configuration that the test gave it, the port of the daemon, and what the daemon says
 * of its topics.  Whatever else Kafka keeps inside a broker is null: a test that looks there fails.
 */
class SegbrokerBroker(shared: SharedServer, cluster: SegbrokerCluster) extends BrokerServer(shared) {
  cluster.know(config)
  private val metadata = new MirroredMetadata(config.nodeId, cluster)
  private val replicas = MirroredReplicas.of(metadata, cluster)
  metadataCache = metadata
  logManager = MirroredReplicas.logs(replicas)
  groupCoordinator = OnlyTopicConfigs.coordinator()
  authorizer = if (DaemonSettings.authorizerOf(config).isEmpty) None else Some(new MirroredRules(cluster))

  dataPlaneRequestProcessor = Mockito.mock(classOf[KafkaApis])
  Mockito.when(dataPlaneRequestProcessor.metadataCache).thenReturn(metadata)
  Mockito.when(dataPlaneRequestProcessor.authorizer).thenReturn(authorizer)
  Mockito.when(dataPlaneRequestProcessor.clusterId).thenAnswer(
    _ => cluster.admin.describeCluster().clusterId().get())
  socketServer = Mockito.mock(classOf[SocketServer])
  Mockito.when(socketServer.boundPort(ArgumentMatchers.any())).thenAnswer(
    call => Integer.valueOf(cluster.port(call.getArgument[ListenerName](0))))

  private var isUp = false

  override def startup(): Unit = { cluster.started(config.nodeId); isUp = true }

  override def shutdown(timeout: Duration): Unit = { isUp = false; cluster.stopped(config.nodeId) }

  override def awaitShutdown(): Unit = {}

  override def isShutdown(): Boolean = !isUp

  override def replicaManager: ReplicaManager = replicas

  override def brokerState: BrokerState = if (isUp) BrokerState.RUNNING else BrokerState.NOT_RUNNING

  override def boundPort(listenerName: ListenerName): Int = cluster.port(listenerName)
}

object SegbrokerBroker {
  private[server] def shared(
    config: KafkaConfig, time: Time, metrics: Metrics, faults: QuorumTestHarnessFaultHandlerFactory
  ): SharedServer = {
    val copier = new MetaPropertiesEnsemble.Copier(MetaPropertiesEnsemble.EMPTY)
    copier.setMetaLogDir(java.util.Optional.of(config.metadataLogDir))
    copier.setLogDirProps(config.metadataLogDir, new MetaProperties.Builder()
      .setVersion(MetaPropertiesVersion.V1).setClusterId("segbroker").setNodeId(config.nodeId).build())
    new SharedServer(config, copier.copy(), time, metrics,
      new CompletableFuture[util.Map[Integer, InetSocketAddress]](), util.List.of(), faults,
      ServerSocketFactory.INSTANCE)
  }

  def of(
    config: KafkaConfig, time: Time, cluster: SegbrokerCluster, faults: QuorumTestHarnessFaultHandlerFactory
  ): SegbrokerBroker = new SegbrokerBroker(shared(config, time, MirroredMetrics.of(cluster), faults), cluster)
}

/** A controller that can say which topic has which id, and that everybody has heard of it. */
object SegbrokerController {
  private def answer(said: InvocationOnMock => Any): Answer[Any] = call => said(call)

  def of(cluster: SegbrokerCluster): ControllerServer = {
    val ids: Controller = Mockito.mock(classOf[Controller], answer { call =>
      val known = new MirroredMetadata(0, cluster).topicNamesToIds()
      call.getMethod.getName match {
        case "findAllTopicIds" => CompletableFuture.completedFuture(known)
        case "findTopicIds" =>
          val found = new util.HashMap[String, ResultOrError[Uuid]]()
          call.getArgument[util.Collection[String]](1).forEach(name =>
            found.put(name, new ResultOrError[Uuid](known.get(name))))
          CompletableFuture.completedFuture(found)
        case name => throw new UnsupportedOperationException(s"there is no controller: $name")
      }
    })
    val log = Mockito.mock(classOf[ReplicatedLog])
    Mockito.when(log.endOffset()).thenReturn(new LogOffsetMetadata(0))
    val raft = Mockito.mock(classOf[KafkaRaftManager[ApiMessageAndVersion]])
    Mockito.when(raft.replicatedLog).thenReturn(log)
    val server = Mockito.mock(classOf[ControllerServer])
    Mockito.when(server.controller).thenReturn(ids)
    Mockito.when(server.raftManager).thenReturn(raft)
    server
  }
}

/** What is wanted of a group coordinator: how it would make its topic. */
object OnlyTopicConfigs {
  def coordinator(): GroupCoordinator = {
    val handler: InvocationHandler = (_: Any, method: Method, _: Array[AnyRef]) =>
      if (method.getName == "groupMetadataTopicConfigs") new Properties()
      else throw new UnsupportedOperationException(s"a look into the group coordinator: ${method.getName}")
    Proxy.newProxyInstance(classOf[GroupCoordinator].getClassLoader,
      Array[Class[_]](classOf[GroupCoordinator]), handler).asInstanceOf[GroupCoordinator]
  }
}
