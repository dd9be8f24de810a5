package kafka.server

import java.util
import java.util.{Optional, Properties}
import java.util.concurrent.ExecutionException

import kafka.server.metadata.KRaftMetadataCache
import org.apache.kafka.admin.BrokerMetadata
import org.apache.kafka.clients.admin.ListTopicsOptions
import org.apache.kafka.common.config.ConfigResource
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException
import org.apache.kafka.common.internals.Topic
import org.apache.kafka.common.metadata._
import org.apache.kafka.common.network.ListenerName
import org.apache.kafka.common.{DirectoryId, Node, TopicPartition, Uuid}
import org.apache.kafka.coordinator.group.GroupCoordinatorConfig
import org.apache.kafka.image.{MetadataDelta, MetadataImage, MetadataProvenance}
import org.apache.kafka.metadata.{LeaderAndIsr, LeaderRecoveryState}
import org.apache.kafka.server.common.{KRaftVersion, MetadataVersion}

import scala.collection.Set
import scala.jdk.CollectionConverters._

/**
 * What a broker knows of topics: asked of the daemon each time.
 *
 * The topic of offsets, which Kafka's harness makes before each test, is taken away again: here
 * offsets are in no topic (0149), and one of that name would be a topic like any other.
 */
class MirroredMetadata(brokerId: Int, cluster: SegbrokerCluster)
  extends KRaftMetadataCache(brokerId, () => KRaftVersion.LATEST_PRODUCTION) {

  private val offsetsTopic = Uuid.randomUuid()

  private def look(): Unit = setImage(imageOfDaemon())

  private def imageOfDaemon(): MetadataImage = {
    val admin = cluster.admin
    val names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get()
    if (names.remove(Topic.GROUP_METADATA_TOPIC_NAME))
      admin.deleteTopics(util.Set.of(Topic.GROUP_METADATA_TOPIC_NAME)).all().get()
    val delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build()
    delta.replay(new FeatureLevelRecord().setName(MetadataVersion.FEATURE_NAME)
      .setFeatureLevel(MetadataVersion.latestTesting().featureLevel()))
    register(delta)
    pretendOffsetsTopic(delta)
    admin.describeTopics(names).topicNameValues().forEach { (name, described) =>
      try {
        val topic = described.get()
        delta.replay(new TopicRecord().setName(name).setTopicId(topic.topicId))
        topic.partitions.forEach { partition =>
          delta.replay(partitionOf(topic.topicId, partition.partition, partition.leader.id))
        }
      } catch {
        // It has been deleted since it was listed.
        case e: ExecutionException if e.getCause.isInstanceOf[UnknownTopicOrPartitionException] =>
      }
    }
    delta.apply(new MetadataProvenance(1, 1, 1, true))
  }

  private def partitionOf(topic: Uuid, partition: Int, leader: Int): PartitionRecord = {
    val ids = util.List.of(Integer.valueOf(leader))
    new PartitionRecord().setTopicId(topic).setPartitionId(partition).setReplicas(ids).setIsr(ids)
      .setLeader(leader).setLeaderEpoch(0).setLeaderRecoveryState(LeaderRecoveryState.RECOVERED.value())
      .setDirectories(util.List.of(DirectoryId.LOST))
  }

  /** There as far as a broker knows: what the harness waits for once it has made it. */
  private def pretendOffsetsTopic(delta: MetadataDelta): Unit = {
    val config = cluster.configs.values.head
    delta.replay(new TopicRecord().setName(Topic.GROUP_METADATA_TOPIC_NAME).setTopicId(offsetsTopic))
    for (partition <- 0 until config.getInt(GroupCoordinatorConfig.OFFSETS_TOPIC_PARTITIONS_CONFIG))
      delta.replay(partitionOf(offsetsTopic, partition, cluster.configs.keys.min))
  }

  private def register(delta: MetadataDelta): Unit = {
    val config = cluster.configs.values.head
    val endPoints = new RegisterBrokerRecord.BrokerEndpointCollection()
    config.effectiveAdvertisedBrokerListeners.foreach { endPoint =>
      endPoints.add(new RegisterBrokerRecord.BrokerEndpoint().setName(endPoint.listenerName.value)
        .setHost("localhost").setPort(cluster.port(endPoint.listenerName))
        .setSecurityProtocol(endPoint.securityProtocol.id))
    }
    delta.replay(new RegisterBrokerRecord().setBrokerId(cluster.configs.keys.min).setBrokerEpoch(1)
      .setIncarnationId(Uuid.randomUuid()).setEndPoints(endPoints).setFenced(false))
  }

  override def hasAliveBroker(id: Int): Boolean = cluster.runs(id)
  override def getAliveBrokers(): Iterable[BrokerMetadata] =
    cluster.configs.keys.filter(cluster.runs).map(id => new BrokerMetadata(id, Optional.empty[String]()))

  override def getAllTopics(): Set[String] = { look(); super.getAllTopics() }
  override def getTopicPartitions(name: String): Set[TopicPartition] = { look(); super.getTopicPartitions(name) }
  override def getTopicId(name: String): Uuid = { look(); super.getTopicId(name) }
  override def getTopicName(id: Uuid): Option[String] = { look(); super.getTopicName(id) }
  override def getLeaderAndIsr(name: String, partition: Int): Option[LeaderAndIsr] = {
    look(); super.getLeaderAndIsr(name, partition)
  }
  override def numPartitions(name: String): Option[Int] = { look(); super.numPartitions(name) }
  override def topicNamesToIds(): util.Map[String, Uuid] = { look(); super.topicNamesToIds() }
  override def topicIdsToNames(): util.Map[Uuid, String] = { look(); super.topicIdsToNames() }
  override def getPartitionLeaderEndpoint(name: String, partition: Int, listener: ListenerName): Option[Node] = {
    look(); super.getPartitionLeaderEndpoint(name, partition, listener)
  }
  override def contains(name: String): Boolean = { look(); super.contains(name) }
  override def contains(tp: TopicPartition): Boolean = { look(); super.contains(tp) }

  override def config(resource: ConfigResource): Properties = {
    val props = new Properties()
    cluster.admin.describeConfigs(util.Set.of(resource)).all().get().get(resource).entries().forEach { entry =>
      if (!entry.isDefault) props.put(entry.name, entry.value)
    }
    props
  }
}
