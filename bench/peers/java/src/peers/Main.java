package peers;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** The locks of Redisson in two conversations: {@code bench|talk LIBRARY …}. ../README.md describes both. */
public final class Main {
    private static final String USAGE = "usage: bench LIBRARY [threads=0|1] | talk LIBRARY URL[,URL…] [cluster=0|1] [watchdog_ms=N]; "
        + "LIBRARY: redisson, redisson-fair, redisson-fenced, redisson-spin";

    private Main() {
    }

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Exception e) {
            System.err.println(e);
            Runtime.getRuntime().halt(1);
        }
        // Not by the usual way out: it would take the library seconds to shut down.
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void run(String[] arguments) throws Exception {
        Map<String, Integer> settings = new HashMap<>(Map.of("threads", 0, "cluster", 0, "watchdog_ms", 30_000));
        List<String> words = new ArrayList<>();
        for (String argument : arguments) {
            String[] pair = argument.split("=", 2);
            if (pair.length == 2 && settings.containsKey(pair[0])) {
                settings.put(pair[0], Integer.valueOf(pair[1]));
            } else {
                words.add(argument);
            }
        }
        Kind kind = 2 <= words.size() ? Kind.of(words.get(1)) : null;
        if (kind != null && words.size() == 2 && words.get(0).equals("bench")) {
            new Bench(kind, settings.get("threads") == 1).run(listen());
        } else if (kind != null && words.size() == 3 && words.get(0).equals("talk")) {
            Library library = new Library(kind, words.get(2), settings.get("cluster") == 1, settings.get("watchdog_ms"));
            new Talk(library).run(listen());
        } else {
            throw new IllegalArgumentException(USAGE);
        }
    }

    static synchronized void say(String line) {
        byte[] bytes = (line.replace('\n', ' ') + "\n").getBytes(StandardCharsets.UTF_8);
        System.out.write(bytes, 0, bytes.length);
        System.out.flush();
    }

    /** Hands on the lines of standard input. When they end, so does the process: whoever started it is gone. */
    private static BlockingQueue<String> listen() {
        BlockingQueue<String> lines = new LinkedBlockingQueue<>();
        Thread reader = new Thread(() -> {
            try (BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
                for (String line = input.readLine(); line != null; line = input.readLine()) {
                    lines.add(line.trim());
                }
            } catch (IOException e) {
                System.err.println(e);
            }
            Runtime.getRuntime().halt(0);
        });
        reader.setDaemon(true);
        reader.start();
        return lines;
    }
}
