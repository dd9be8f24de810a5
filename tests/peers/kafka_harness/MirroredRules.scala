package kafka.server

import java.util
import java.util.concurrent.{CompletableFuture, CompletionStage, ExecutionException}

import org.apache.kafka.common.Endpoint
import org.apache.kafka.common.acl.{AclBinding, AclBindingFilter}
import org.apache.kafka.common.errors.ApiException
import org.apache.kafka.server.authorizer._

import scala.jdk.CollectionConverters._

/** The daemon's access rules, read and changed by requests. */
class MirroredRules(cluster: SegbrokerCluster) extends Authorizer {

  override def createAcls(
    context: AuthorizableRequestContext, bindings: util.List[AclBinding]
  ): util.List[_ <: CompletionStage[AclCreateResult]] =
    bindings.asScala.map { binding =>
      val made = try {
        cluster.admin.createAcls(util.List.of(binding)).all().get()
        AclCreateResult.SUCCESS
      } catch {
        case e: ExecutionException if e.getCause.isInstanceOf[ApiException] =>
          new AclCreateResult(e.getCause.asInstanceOf[ApiException])
      }
      CompletableFuture.completedFuture(made)
    }.asJava

  override def deleteAcls(
    context: AuthorizableRequestContext, filters: util.List[AclBindingFilter]
  ): util.List[_ <: CompletionStage[AclDeleteResult]] =
    filters.asScala.map { filter =>
      val gone = cluster.admin.deleteAcls(util.List.of(filter)).all().get().asScala
      CompletableFuture.completedFuture(
        new AclDeleteResult(gone.map(new AclDeleteResult.AclBindingDeleteResult(_)).toList.asJava))
    }.asJava

  override def acls(filter: AclBindingFilter): java.lang.Iterable[AclBinding] =
    cluster.admin.describeAcls(filter).values().get()

  override def authorize(
    context: AuthorizableRequestContext, actions: util.List[Action]
  ): util.List[AuthorizationResult] = throw new UnsupportedOperationException("the daemon decides")

  override def start(info: AuthorizerServerInfo): util.Map[Endpoint, _ <: CompletionStage[Void]] =
    util.Map.of()

  override def configure(configs: util.Map[String, _]): Unit = {}

  override def close(): Unit = {}
}
