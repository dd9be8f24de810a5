package kafka.server

import kafka.cluster.Partition
import kafka.log.UnifiedLog
import org.apache.kafka.clients.admin.OffsetSpec
import org.apache.kafka.common.TopicPartition
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
