package kafka.server

import java.util

import org.apache.kafka.metadata.storage.Formatter

import scala.collection.mutable
import scala.jdk.CollectionConverters._

/** Takes what a test says of the users that are there before its brokers begin. */
class FirstUsers extends Formatter {
  private val argument = "(.*)=\\[name=([^,]*),password=(.*)\\]".r
  private val named = mutable.Map[String, String]()

  /** Name -> password. */
  def passwords: Map[String, String] = named.toMap

  override def setScramArguments(arguments: util.List[String]): Formatter = {
    arguments.asScala.foreach { case argument(_, name, password) => named += name -> password }
    this
  }
}
