// Runs Kafka's command-line tools, unmodified, one after another in one JVM: a JSON line
// {"main": class, "arguments": [...]} is answered with {"out", "err", "status"}. With "stdin" a
// tool has something to read; with "hooks" what it wants done at the exit of its JVM is done when
// it ends.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

public class KafkaTools {
    static final ObjectMapper JSON = new ObjectMapper();
    static final List<Runnable> HOOKS = new ArrayList<>();
    static final ByteArrayOutputStream SAID = new ByteArrayOutputStream();
    static final ByteArrayOutputStream WARNED = new ByteArrayOutputStream();
    // Where a tool exited for the first time; some take that for a failure, and say more.
    static Exited exited;

    static class Exited extends RuntimeException {
        final int code;
        final byte[] said, warned;

        Exited(int code) {
            this.code = code;
            System.out.flush();
            System.err.flush();
            said = SAID.toByteArray();
            warned = WARNED.toByteArray();
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        Exit.setExitProcedure((code, message) -> {
            Exited here = new Exited(code);
            exited = exited == null ? here : exited;
            throw here;
        });
        Exit.setShutdownHookAdder((name, runnable) -> HOOKS.add(runnable));
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(run(JSON.readTree(line)));
            answers.flush();
        }
    }

    static String run(JsonNode asked) throws Exception {
        PrintStream out = System.out, err = System.err;
        InputStream in = System.in;
        HOOKS.clear();
        exited = null;
        SAID.reset();
        WARNED.reset();
        if (asked.has("stdin")) {
            byte[] text = asked.get("stdin").asText().getBytes(StandardCharsets.UTF_8);
            System.setIn(new ByteArrayInputStream(text));
        }
        System.setOut(new PrintStream(SAID, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(WARNED, true, StandardCharsets.UTF_8));
        int code = 0;
        try {
            List<String> arguments = new ArrayList<>();
            asked.get("arguments").forEach(each -> arguments.add(each.asText()));
            Class.forName(asked.get("main").asText())
                    .getMethod("main", String[].class)
                    .invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (InvocationTargetException ended) {
            if (exited == null) {
                code = 1;
                ended.getCause().printStackTrace();
            }
        } finally {
            if (exited != null) {
                code = exited.code;
                System.out.flush();
                System.err.flush();
                SAID.reset();
                SAID.write(exited.said);
                WARNED.reset();
                WARNED.write(exited.warned);
            }
            if (asked.has("hooks")) {
                HOOKS.forEach(Runnable::run);
            }
            System.setIn(in);
            System.out.flush();
            System.err.flush();
            System.setOut(out);
            System.setErr(err);
        }
        return JSON.createObjectNode()
                .put("out", SAID.toString(StandardCharsets.UTF_8))
                .put("err", WARNED.toString(StandardCharsets.UTF_8))
                .put("status", code)
                .toString();
    }
}
