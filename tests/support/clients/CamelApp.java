import org.apache.camel.Exchange;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.component.kafka.KafkaConstants;
import org.apache.camel.component.kafka.consumer.KafkaManualCommit;
import org.apache.camel.impl.DefaultCamelContext;
import org.apache.camel.processor.idempotent.kafka.KafkaIdempotentRepository;

/**
 * Routes of Apache Camel: each value of a topic is copied to another one, in a transaction of its
 * own, and is committed by hand after that. A value that fails is tried again, and then goes to the
 * topic `failed`. The values that were copied are kept in the topic `seen`, so that one that comes
 * again after a crash is mostly not copied again. One consumer: others would share its producer, and
 * with that its transaction.
 *
 * <p>Arguments: address, topic to read, topic to write. A line on its input ends it.
 */
public class CamelApp extends RouteBuilder {
    private final String in;
    private final String out;

    CamelApp(String in, String out) {
        this.in = in;
        this.out = out;
    }

    @Override
    public void configure() {
        errorHandler(
                deadLetterChannel("kafka:failed").maximumRedeliveries(2).redeliveryDelay(50));
        from("kafka:" + in
                        + "?groupId=copies&autoOffsetReset=earliest&sessionTimeoutMs=6000"
                        + "&maxPollRecords=50&autoCommitEnable=false&allowManualCommit=true")
                .idempotentConsumer(body())
                .idempotentRepository("seen")
                .eager(false)
                .process(CamelApp::check)
                .to("kafka:" + out
                        + "?additionalProperties.transactional.id=camel-"
                        + ProcessHandle.current().pid())
                .end()
                .process(CamelApp::commit);
    }

    private static void check(Exchange exchange) {
        if (exchange.getIn().getBody(String.class).startsWith("bad")) {
            throw new IllegalStateException("bad");
        }
    }

    private static void commit(Exchange exchange) {
        var commit =
                exchange.getIn()
                        .getHeader(KafkaConstants.MANUAL_COMMIT, KafkaManualCommit.class);
        if (exchange.getIn().getHeader(KafkaConstants.LAST_RECORD_BEFORE_COMMIT, Boolean.class)) {
            commit.commit();
        }
    }

    public static void main(String[] args) throws Exception {
        var camel = new DefaultCamelContext();
        var component =
                camel.getComponent(
                        "kafka", org.apache.camel.component.kafka.KafkaComponent.class);
        component.getConfiguration().setBrokers(args[0]);
        camel.getRegistry().bind("seen", new KafkaIdempotentRepository("seen", args[0]));
        camel.addRoutes(new CamelApp(args[1], args[2]));
        camel.start();
        System.out.println("ready");
        System.in.read();
        camel.stop();
        System.exit(0);
    }
}
