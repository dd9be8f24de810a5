import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs command-line tools of Kafka one after another in one virtual machine, which is what most
 * of their time goes into otherwise.
 *
 * <p>COMMANDS FOLDER SECONDS; a line of the file COMMANDS is NAME, STANDARD INPUT (a file, or empty),
 * CLASS and the arguments, with tabs between. What a tool printed comes to FOLDER/NAME, and a
 * line "ran NAME CODE MILLISECONDS" to standard output; the code of one that does not end within
 * SECONDS is "hangs", with its stack in the file.
 */
public class ToolRunner {
    /** Instead of the end of the process. */
    static class Ended extends Error {
        final int code;

        Ended(int code) {
            super("exit " + code, null, false, false);
            this.code = code;
        }
    }

    static Object call(String name, String[] arguments) throws Throwable {
        try {
            return Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            throw error.getCause();
        }
    }

    public static void main(String[] args) throws Exception {
        AtomicInteger first = new AtomicInteger();
        Exit.Procedure procedure = (code, message) -> {
            // A tool that catches what we throw would say another code afterwards.
            first.compareAndSet(Integer.MIN_VALUE, code);
            throw new Ended(code);
        };
        Exit.setExitProcedure(procedure);
        Exit.setHaltProcedure(procedure);
        Exit.setShutdownHookAdder((name, hook) -> { });
        PrintStream out = System.out;
        PrintStream err = System.err;
        java.io.InputStream in = System.in;
        List<String> commands = Files.readAllLines(Path.of(args[0]));
        for (String command : commands) {
            String[] parts = command.split("\t", -1);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream sink = new PrintStream(printed, true);
            byte[] input = parts[1].isEmpty() ? new byte[0] : Files.readAllBytes(Path.of(parts[1]));
            System.setIn(new ByteArrayInputStream(input));
            System.setOut(sink);
            System.setErr(sink);
            first.set(Integer.MIN_VALUE);
            AtomicInteger code = new AtomicInteger();
            long began = System.nanoTime();
            Thread thread = new Thread(() -> {
                try {
                    call(parts[2], Arrays.copyOfRange(parts, 3, parts.length));
                } catch (Ended ended) {
                    code.set(ended.code);
                } catch (Throwable error) {
                    code.set(1);
                    error.printStackTrace(sink);
                }
            });
            thread.setDaemon(true);
            thread.start();
            thread.join(Long.parseLong(args[2]) * 1000);
            String said;
            if (thread.isAlive()) {
                said = "hangs";
                for (StackTraceElement element : thread.getStackTrace()) {
                    sink.println("\tat " + element);
                }
                thread.interrupt();
            } else {
                said = Integer.toString(first.get() == Integer.MIN_VALUE ? code.get() : first.get());
            }
            System.setOut(out);
            System.setErr(err);
            System.setIn(in);
            Files.write(new File(args[1], parts[0]).toPath(), printed.toByteArray());
            out.println("ran " + parts[0] + " " + said + " " + (System.nanoTime() - began) / 1_000_000);
            out.flush();
        }
        System.exit(0);
    }
}
