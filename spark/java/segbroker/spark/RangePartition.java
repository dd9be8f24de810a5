package segbroker.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import net.razorvine.pickle.Unpickler;
import org.apache.spark.sql.connector.read.InputPartition;
import scala.Product;

/**
 * A task on its way to an executor: what the Python source planned, as its JSON.
 *
 * <p>Spark keeps a partition of a Python source as pickled bytes. Those of the Python source for this
 * reader are an object whose attribute `value` is the JSON (see spark/jvm.py); an empty plan is one
 * partition without a value.
 */
public record RangePartition(String scan) implements InputPartition {
    static InputPartition[] of(InputPartition[] planned) {
        List<InputPartition> found = new ArrayList<>();
        for (InputPartition each : planned) {
            String scan = scanOf(each);
            if (scan != null) {
                found.add(new RangePartition(scan));
            }
        }
        return found.toArray(new InputPartition[0]);
    }

    /** Without what it holds: there may be a password in it. */
    @Override
    public String toString() {
        return "RangePartition";
    }

    private static String scanOf(InputPartition planned) {
        // A case class of Spark's inside, PythonInputPartition or its twin of streams: the bytes are
        // its only field of that kind in every version.
        Product fields = (Product) planned;
        for (int n = 0; n < fields.productArity(); n++) {
            if (fields.productElement(n) instanceof byte[] pickled) {
                return (String) unpickled(pickled).get("value");
            }
        }
        throw new IllegalStateException("a partition of " + planned.getClass() + " without bytes");
    }

    private static Map<?, ?> unpickled(byte[] pickled) {
        try {
            return (Map<?, ?>) new Unpickler().loads(pickled);
        } catch (IOException exc) {
            throw new IllegalStateException("a partition that cannot be unpickled", exc);
        }
    }
}
