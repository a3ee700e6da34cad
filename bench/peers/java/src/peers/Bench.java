package peers;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.yaml.snakeyaml.Yaml;

/** The benchmark's critical section, again and again, with the asynchronous calls or with threads. */
final class Bench {
    private static final long LEASE_MS = 30_000;
    private static final long NEVER = -1;
    /** Uncontended acquisitions before anything is measured: until then a virtual machine interprets. */
    private static final int WARM_UP = 3_000;
    private static final Instant START = Instant.now();
    private static final long START_NANOS = System.nanoTime();

    private final Kind kind;
    private final boolean threads;
    private Library library;
    private FileChannel counter;
    private String name;
    private long endNs;
    private long most;

    Bench(Kind kind, boolean threads) {
        this.kind = kind;
        this.threads = threads;
    }

    /** The wall clock as it was at the start, and since then one that nobody sets: all processes of a machine read it alike. */
    private static long nowNs() {
        return START.getEpochSecond() * 1_000_000_000 + START.getNano() + (System.nanoTime() - START_NANOS);
    }

    void run(BlockingQueue<String> lines) throws Exception {
        Map<String, Object> job = new Yaml().load(lines.take());
        library = new Library(kind, (String) job.get("url"), false, 30_000);
        name = (String) job.get("name");
        counter = FileChannel.open(Path.of((String) job.get("counter")), StandardOpenOption.READ, StandardOpenOption.WRITE,
            StandardOpenOption.CREATE);
        if (counter.size() < 16) {
            counter.write(ByteBuffer.allocate(16), 0);
        }
        RLock elsewhere = library.lock(name + "-" + ProcessHandle.current().pid());
        for (int round = 0; round < WARM_UP; round += 1) {
            if (Library.acquire(elsewhere, LEASE_MS, 10_000) != null) {
                Library.release(elsewhere);
            }
        }
        Main.say("ready Redisson " + Library.version() + ", " + kind.type + ", " + (threads ? "threads" : "asynchronous"));
        lines.take();
        int tasks = number(job, "tasks").intValue();
        long startNs = nowNs();
        endNs = startNs + number(job, "time_ms").longValue() * 1_000_000;
        most = (number(job, "most").longValue() + tasks - 1) / tasks;
        List<CompletableFuture<Passes>> running = new ArrayList<>();
        for (int task = 0; task < tasks; task += 1) {
            running.add(threads ? blocking() : new Task(task + 1).begin());
        }
        List<Passes> passes = new ArrayList<>();
        for (CompletableFuture<Passes> task : running) {
            passes.add(task.get());
        }
        long elapsedUs = (nowNs() - startNs) / 1_000;
        Passes.write(passes, Path.of((String) job.get("passes")));
        Main.say("{\"elapsed_us\":" + elapsedUs + ",\"traffic\":{\"requests\":null,\"pushes\":0}}");
    }

    private static Number number(Map<String, Object> job, String key) {
        return (Number) job.get(key);
    }

    /** Milliseconds that may still be waited. */
    private long leftMs(long askedNs) {
        return Math.min((endNs - askedNs) / 1_000_000, 3_600_000);
    }

    /** Counts one up, as somebody would who trusts the lock. Returns when the lock was last given back. */
    private long pass() throws IOException {
        ByteBuffer words = ByteBuffer.allocate(16).order(ByteOrder.LITTLE_ENDIAN);
        counter.read(words, 0);
        long releasedNs = words.getLong(8);
        Thread.yield();
        words.putLong(0, words.getLong(0) + 1).putLong(8, nowNs()).rewind();
        counter.write(words, 0);
        return releasedNs;
    }

    private CompletableFuture<Passes> blocking() {
        CompletableFuture<Passes> done = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                done.complete(block());
            } catch (Exception e) {
                done.completeExceptionally(e);
            }
        });
        thread.start();
        return done;
    }

    private Passes block() throws Exception {
        RLock lock = library.lock(name);
        Passes passes = new Passes();
        while (passes.count() < most) {
            long askedNs = nowNs();
            long leftMs = leftMs(askedNs);
            if (leftMs < 1) {
                break;
            }
            Long fence = Library.acquire(lock, LEASE_MS, leftMs);
            long endedNs = nowNs();
            if (fence == null) {
                passes.add(askedNs, endedNs, 0, NEVER);
                break;
            }
            long releasedNs = pass();
            if (!Library.release(lock)) {
                throw new IllegalStateException("a release failed");
            }
            passes.add(askedNs, endedNs, 1, since(askedNs, releasedNs, endedNs));
        }
        return passes;
    }

    private static long since(long askedNs, long releasedNs, long endedNs) {
        return askedNs <= releasedNs ? Math.max(endedNs - releasedNs, 0) : NEVER;
    }

    /** A task that is no thread: the owner of its lock is a number of its own. */
    private final class Task {
        private final long owner;
        private final RLock lock = library.lock(name);
        private final Passes passes = new Passes();
        private final CompletableFuture<Passes> done = new CompletableFuture<>();

        Task(long owner) {
            this.owner = owner;
        }

        CompletableFuture<Passes> begin() {
            next();
            return done;
        }

        private void next() {
            long askedNs = nowNs();
            long leftMs = leftMs(askedNs);
            if (leftMs < 1 || most <= passes.count()) {
                done.complete(passes);
                return;
            }
            lock.tryLockAsync(leftMs, LEASE_MS, TimeUnit.MILLISECONDS, owner).whenComplete((granted, failure) -> {
                try {
                    granted(askedNs, granted, failure);
                } catch (Exception e) {
                    done.completeExceptionally(e);
                }
            });
        }

        private void granted(long askedNs, Boolean granted, Throwable failure) throws IOException {
            long endedNs = nowNs();
            if (failure != null && !Library.isRefusal(failure)) {
                throw new CompletionException(failure);
            }
            if (failure != null || !granted) {
                passes.add(askedNs, endedNs, 0, NEVER);
                done.complete(passes);
                return;
            }
            long releasedNs = pass();
            lock.unlockAsync(owner).whenComplete((nothing, refusal) -> {
                if (refusal != null) {
                    done.completeExceptionally(refusal);
                    return;
                }
                passes.add(askedNs, endedNs, 1, since(askedNs, releasedNs, endedNs));
                next();
            });
        }
    }
}
