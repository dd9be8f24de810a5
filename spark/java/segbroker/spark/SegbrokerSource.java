package segbroker.spark;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * format("segbroker") where the jar is there: Python plans, and the rows are read here.
 *
 * <p>Spark looks for formats in jars before it looks in Python, so this class stands in front of the
 * Python data source of the same name and asks it everything: options, offsets, limits, loss, which
 * tasks. Only the executors' reading is another one. In the schema the Python source says which of
 * the two reads: asked with the option {@link #ASK} it appends a column {@link #MARK} whose comment is
 * "jvm", or "python: " and why. Where it says python, or is not asked (writing, a schema that the
 * user gave), Spark gets the Python table itself and all is as without the jar.
 *
 * <p>Of Spark's inside this knows PythonDataSourceV2, its setShortName and the environment of its
 * function; everything else goes through the public interfaces of data source V2.
 */
public final class SegbrokerSource implements TableProvider, DataSourceRegister {
    static final String NAME = "segbroker";
    static final String ASK = "__jvm";
    static final String MARK = "$reader";

    private static final Logger LOG = LoggerFactory.getLogger("segbroker.spark");

    /**
     * What Spark's runners of streaming sources put into the environment of the Python source, each
     * before it starts its worker. That environment is one map for all queries of the JVM, and no
     * concurrent one: where two queries put a new variable at the same time it may count it twice,
     * and from then on refuses to be serialized ("Task not serializable", Spark 4.3.0).
     */
    private static final List<String> VARIABLES =
            List.of(
                    "SPARK_LOCAL_DIRS",
                    "SPARK_AUTH_SOCKET_TIMEOUT",
                    "SPARK_BUFFER_SIZE",
                    "SPARK_PYTHON_RUNTIME");

    private final PythonDataSourceV2 python = new PythonDataSourceV2();
    private boolean readsHere;

    public SegbrokerSource() {
        python.setShortName(NAME);
    }

    @Override
    public String shortName() {
        return NAME;
    }

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        settleVariables(python);
        StructType rows = new StructType();
        String choice = "python: it does not know this jar";
        for (StructField field : python.inferSchema(asking(options)).fields()) {
            if (field.name().equals(MARK)) {
                choice = field.getComment().getOrElse(() -> "python");
            } else {
                rows = rows.add(field);
            }
        }
        readsHere = choice.equals("jvm");
        LOG.info("segbroker: rows are read by {}", choice);
        return rows;
    }

    @Override
    public Transform[] inferPartitioning(CaseInsensitiveStringMap options) {
        return python.inferPartitioning(options);
    }

    @Override
    public Table getTable(
            StructType schema, Transform[] partitioning, Map<String, String> properties) {
        settleVariables(python);
        Table table = python.getTable(schema, partitioning, properties);
        return readsHere ? new ScannedTable(table, schema) : table;
    }

    @Override
    public boolean supportsExternalMetadata() {
        return true;
    }

    /** Has the variables there before the first query runs: who puts them again changes a value. */
    private static synchronized void settleVariables(PythonDataSourceV2 python) {
        Map<String, String> environment = python.source().dataSourceCls().envVars();
        for (String variable : VARIABLES) {
            environment.putIfAbsent(variable, "");
        }
    }

    /** The options with the question in them: the Python source is made only once per query. */
    static CaseInsensitiveStringMap asking(CaseInsensitiveStringMap options) {
        Map<String, String> asked = new HashMap<>(options.asCaseSensitiveMap());
        asked.put(ASK, "1");
        return new CaseInsensitiveStringMap(asked);
    }
}
