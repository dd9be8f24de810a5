package kafka.server

import java.util

import com.yammer.metrics.core.Gauge
import org.apache.kafka.common.MetricName
import org.apache.kafka.common.metrics.{KafkaMetric, Metrics}
import org.apache.kafka.server.metrics.KafkaYammerMetrics
import org.mockito.Mockito
import org.mockito.invocation.InvocationOnMock
import org.mockito.stubbing.Answer

/**
 * Two of a broker's counters, by the daemon's log: logins that were refused, sessions that were
 * over.  Who asks for another one is refused, and the test fails.
 */
object MirroredMetrics {
  private val events = Map(
    "expired-connections-killed-count" -> "session_expired",
    "failed-authentication-total" -> "authentication_failed",
    "failed-reauthentication-total" -> "authentication_failed",
  )

  private def refused: Answer[Any] = (call: InvocationOnMock) =>
    throw new UnsupportedOperationException(s"a look into the broker: ${call.getMethod}")

  private def counter(name: String, event: String, cluster: SegbrokerCluster): KafkaMetric =
    Mockito.mock(classOf[KafkaMetric], ((call: InvocationOnMock) => call.getMethod.getName match {
      case "metricName" => new MetricName(name, "", "", util.Map.of())
      case "metricValue" => cluster.logged(event).toDouble
      case _ => refused.answer(call)
    }): Answer[Any])

  def of(cluster: SegbrokerCluster): Metrics = {
    val known: util.Map[MetricName, KafkaMetric] = Mockito.mock(
      classOf[util.Map[MetricName, KafkaMetric]], ((call: InvocationOnMock) => call.getMethod.getName match {
        case "values" =>
          val all = new util.ArrayList[KafkaMetric]()
          events.foreach { case (name, event) => all.add(counter(name, event, cluster)) }
          all
        case _ => refused.answer(call)
      }): Answer[Any])
    KafkaYammerMetrics.defaultRegistry.newGauge(
      new com.yammer.metrics.core.MetricName("kafka.network", "SocketServer", "ExpiredConnectionsKilledCount"),
      new Gauge[Double] { override def value(): Double = cluster.logged("session_expired").toDouble })
    Mockito.mock(classOf[Metrics], ((call: InvocationOnMock) =>
      if (call.getMethod.getName == "metrics") known else refused.answer(call)): Answer[Any])
  }
}
