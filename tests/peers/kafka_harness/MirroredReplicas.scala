package kafka.server

import kafka.cluster.Partition
import kafka.log.{LogCleaner, LogManager, UnifiedLog}
import org.apache.kafka.clients.admin.OffsetSpec
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.internals.Topic
import org.mockito.Mockito
import org.mockito.invocation.InvocationOnMock
import org.mockito.stubbing.Answer

import java.util

/**
 * What a test may ask a broker's replica manager: whether it has a partition, and its bounds.
 *
 * Each is a question to the daemon.  Anything else is refused, and the test fails.
 */
object MirroredReplicas {
  private def only(answers: (String, InvocationOnMock => Any)*): Answer[Any] = {
    val known = answers.toMap
    call => known.getOrElse(call.getMethod.getName, (_: InvocationOnMock) =>
      throw new UnsupportedOperationException(s"a look into the broker: ${call.getMethod}"))(call)
  }

  def of(metadata: MirroredMetadata, cluster: SegbrokerCluster): ReplicaManager = {
    def online(tp: TopicPartition): Option[Partition] =
      if (metadata.contains(tp)) Some(partition(tp, cluster)) else None
    Mockito.mock(classOf[ReplicaManager], only(
      "onlinePartition" -> (call => online(call.getArgument(0))),
      "localLog" -> (call => online(call.getArgument(0)).flatMap(_.log)),
    ))
  }

  /**
   * Logs by partition, and that the topic of offsets has been compacted: what a test then looks at is
   * whether groups are as they were, which a daemon keeps elsewhere.  No compaction is seen by such a
   * test, so it is not counted as passed (kafka.in_part).
   */
  def logs(replicas: ReplicaManager): LogManager = {
    val offsets = Mockito.mock(classOf[UnifiedLog], only("roll" -> (_ => null), "roll$default$1" -> (_ => None)))
    def isOffsets(call: InvocationOnMock): Boolean =
      call.getArgument[TopicPartition](0).topic == Topic.GROUP_METADATA_TOPIC_NAME
    val cleaner = Mockito.mock(classOf[LogCleaner], only(
      "awaitCleaned" -> (call => isOffsets(call)),
      "awaitCleaned$default$3" -> (_ => 0L),
    ))
    Mockito.mock(classOf[LogManager], only(
      "getLog" -> (call => if (isOffsets(call)) Some(offsets) else replicas.localLog(call.getArgument(0))),
      "getLog$default$2" -> (_ => false),
      "cleaner" -> (_ => cleaner),
    ))
  }

  private def leaderEpoch(tp: TopicPartition, cluster: SegbrokerCluster): Int = {
    val latest = cluster.admin.listOffsets(util.Map.of(tp, OffsetSpec.latest())).partitionResult(tp).get()
    latest.leaderEpoch.orElse(0)
  }

  private def partition(tp: TopicPartition, cluster: SegbrokerCluster): Partition = {
    def bound(spec: OffsetSpec): Long =
      cluster.admin.listOffsets(util.Map.of(tp, spec)).partitionResult(tp).get().offset
    val log = Mockito.mock(classOf[UnifiedLog], only(
      "logStartOffset" -> (_ => bound(OffsetSpec.earliest())),
      "logEndOffset" -> (_ => bound(OffsetSpec.latest())),
      "highWatermark" -> (_ => bound(OffsetSpec.latest())),
    ))
    Mockito.mock(classOf[Partition], only(
      "log" -> (_ => Some(log)),
      "leaderLogIfLocal" -> (_ => Some(log)),
      "getLeaderEpoch" -> (_ => leaderEpoch(tp, cluster)),
    ))
  }
}
