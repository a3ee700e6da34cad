package peers;

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbc.JdbcLockProvider;
import org.yaml.snakeyaml.Yaml;

/** ShedLock's JDBC provider on PostgreSQL, for the benchmark: {@code bench shedlock-jdbc}. It has no wait, so this tries again. */
public final class Shed {
    private static final long LEASE_MS = 30_000;
    private static final long NEVER = -1;
    private static final long POLL_MS = 50;
    /** Uncontended acquisitions before anything is measured: until then a virtual machine interprets. */
    private static final int WARM_UP = 500;
    private static final Instant START = Instant.now();
    private static final long START_NANOS = System.nanoTime();
    private static final String TABLE = "CREATE TABLE IF NOT EXISTS shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, "
        + "locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL) WITH (fillfactor = 50)";

    private final LockProvider provider;
    private final FileChannel counter;
    private final String name;
    private final long most;
    private long endNs;

    private Shed(LockProvider provider, Map<String, Object> job) throws IOException {
        this.provider = provider;
        name = (String) job.get("name");
        most = (number(job, "most") + number(job, "tasks") - 1) / number(job, "tasks");
        counter = FileChannel.open(Path.of((String) job.get("counter")), StandardOpenOption.READ, StandardOpenOption.WRITE,
            StandardOpenOption.CREATE);
        if (counter.size() < 16) {
            counter.write(ByteBuffer.allocate(16), 0);
        }
    }

    public static void main(String[] arguments) {
        try {
            if (arguments.length != 2 || !arguments[0].equals("bench")) {
                throw new IllegalArgumentException("usage: bench shedlock-jdbc");
            }
            run();
        } catch (Exception e) {
            System.err.println(e);
            Runtime.getRuntime().halt(1);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void run() throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Map<String, Object> job = new Yaml().load(input.readLine());
        int tasks = (int) number(job, "tasks");
        Shed shed = new Shed(new JdbcLockProvider(pool((String) job.get("url"), tasks)), job);
        shed.warmUp();
        System.out.println("ready ShedLock " + version() + ", JdbcLockProvider, tries again every " + POLL_MS + " ms");
        System.out.flush();
        input.readLine();
        // When the input ends, whoever started this process is gone.
        Thread watcher = new Thread(() -> {
            try {
                while (input.readLine() != null) {
                    Thread.onSpinWait();
                }
            } catch (IOException e) {
                System.err.println(e);
            }
            Runtime.getRuntime().halt(0);
        });
        watcher.setDaemon(true);
        watcher.start();
        long startNs = nowNs();
        shed.endNs = startNs + number(job, "time_ms") * 1_000_000;
        List<CompletableFuture<Passes>> running = new ArrayList<>();
        for (int task = 0; task < tasks; task += 1) {
            running.add(shed.start());
        }
        List<Passes> passes = new ArrayList<>();
        for (CompletableFuture<Passes> task : running) {
            passes.add(task.get());
        }
        long elapsedUs = (nowNs() - startNs) / 1_000;
        Passes.write(passes, Path.of((String) job.get("passes")));
        System.out.println("{\"elapsed_us\":" + elapsedUs + ",\"traffic\":{\"requests\":null,\"pushes\":0}}");
    }

    /** The address is postgres://USER@HOST:PORT/DATABASE. */
    private static HikariDataSource pool(String url, int tasks) throws SQLException {
        String[] parts = url.replaceFirst("^postgres(ql)?://", "").split("@", 2);
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl("jdbc:postgresql://" + parts[parts.length - 1]);
        config.setUsername(parts.length == 2 ? parts[0].split(":", 2)[0] : "postgres");
        config.setMaximumPoolSize(Math.min(tasks, 24));
        HikariDataSource pool = new HikariDataSource(config);
        try (Connection connection = pool.getConnection(); Statement statement = connection.createStatement()) {
            statement.execute(TABLE);
        } catch (SQLException e) {
            // Another process has made it at the same time.
            if (!"23505".equals(e.getSQLState()) && !"42P07".equals(e.getSQLState())) {
                throw e;
            }
        }
        return pool;
    }

    private static String version() {
        String jar = LockProvider.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        return jar.replaceFirst(".*shedlock-core-", "").replaceFirst("\\.jar$", "");
    }

    private static long number(Map<String, Object> job, String key) {
        return ((Number) job.get(key)).longValue();
    }

    private static long nowNs() {
        return START.getEpochSecond() * 1_000_000_000 + START.getNano() + (System.nanoTime() - START_NANOS);
    }

    private Optional<SimpleLock> tryLock(String name) {
        return provider.lock(new LockConfiguration(Instant.now(), name, Duration.ofMillis(LEASE_MS), Duration.ZERO));
    }

    private void warmUp() {
        String elsewhere = name + "-" + ProcessHandle.current().pid();
        for (int round = 0; round < WARM_UP; round += 1) {
            tryLock(elsewhere).ifPresent(SimpleLock::unlock);
        }
    }

    private CompletableFuture<Passes> start() {
        CompletableFuture<Passes> done = new CompletableFuture<>();
        new Thread(() -> {
            try {
                done.complete(contend());
            } catch (Exception e) {
                done.completeExceptionally(e);
            }
        }).start();
        return done;
    }

    private Passes contend() throws Exception {
        Passes passes = new Passes();
        while (passes.count() < most) {
            long askedNs = nowNs();
            if (endNs - askedNs < 1_000_000) {
                break;
            }
            Optional<SimpleLock> held = tryLock(name);
            while (held.isEmpty() && nowNs() + POLL_MS * 1_000_000 < endNs) {
                Thread.sleep(POLL_MS);
                held = tryLock(name);
            }
            long endedNs = nowNs();
            if (held.isEmpty()) {
                passes.add(askedNs, endedNs, 0, NEVER);
                break;
            }
            long releasedNs = pass();
            held.get().unlock();
            passes.add(askedNs, endedNs, 1, askedNs <= releasedNs ? Math.max(endedNs - releasedNs, 0) : NEVER);
        }
        return passes;
    }

    /** Counts one up under the lock. Returns when the lock was last given back. */
    private long pass() throws IOException {
        ByteBuffer words = ByteBuffer.allocate(16).order(ByteOrder.LITTLE_ENDIAN);
        counter.read(words, 0);
        long releasedNs = words.getLong(8);
        Thread.yield();
        words.putLong(0, words.getLong(0) + 1).putLong(8, nowNs()).rewind();
        counter.write(words, 0);
        return releasedNs;
    }
}
