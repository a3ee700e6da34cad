package peers;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.redisson.api.RLock;

/** Does what it is told, line by line; each handle has a thread of its own, and in it the order in which it was told. */
final class Talk {
    /** What a handle holds. It is touched by the thread of the handle only. */
    private static final class Handle {
        final ExecutorService thread = Executors.newSingleThreadExecutor();
        RLock lock;
        Long fence;
        int count;
    }

    private final Library library;
    private final Map<String, Handle> handles = new HashMap<>();

    Talk(Library library) {
        this.library = library;
    }

    void run(BlockingQueue<String> lines) throws InterruptedException {
        Main.say("ready");
        while (true) {
            String[] words = lines.take().split("\\s+");
            if (words.length < 2) {
                Main.say((words[0].isEmpty() ? "-" : words[0]) + " error a command and a handle are wanted");
                continue;
            }
            Handle handle = handles.computeIfAbsent(words[1], name -> new Handle());
            handle.thread.execute(() -> {
                String answer;
                try {
                    answer = answer(handle, words);
                } catch (Exception e) {
                    answer = "error " + e;
                }
                Main.say(words[1] + " " + answer);
            });
        }
    }

    private String answer(Handle handle, String[] words) throws Exception {
        String[] more = Arrays.copyOfRange(words, 2, words.length);
        return switch (words[0] + "/" + more.length) {
            case "try/2" -> acquire(handle, more[0], Long.parseLong(more[1]), 0);
            case "lock/3" -> acquire(handle, more[0], Long.parseLong(more[1]), Long.parseLong(more[2]));
            case "again/0", "again/1" -> again(handle, more.length == 0 ? 30_000 : Long.parseLong(more[0]));
            case "unlock/0" -> {
                if (handle.lock == null) {
                    yield "error it holds nothing";
                }
                boolean released = Library.release(handle.lock);
                handle.count -= 1;
                if (!released || handle.count == 0) {
                    handle.lock = null;
                }
                yield released ? "released" : "lost";
            }
            case "fence/0" -> {
                if (library.kind != Kind.FENCED) {
                    yield "unsupported";
                }
                yield handle.lock == null ? "error it holds nothing" : "fence " + handle.fence;
            }
            case "holds/0" -> library.lock(words[1]).isLocked() ? "yes" : "no";
            case "contend/5" -> contend(words[1], more);
            default -> "error what is " + words[0] + " with " + more.length + " more words?";
        };
    }

    private String acquire(Handle handle, String key, long leaseMs, long waitMs) throws InterruptedException {
        if (handle.lock != null) {
            return "error it holds something";
        }
        RLock lock = library.lock(key);
        Long fence = Library.acquire(lock, leaseMs, waitMs);
        if (fence == null) {
            return "refused";
        }
        handle.lock = lock;
        handle.fence = fence;
        handle.count = 1;
        return "held";
    }

    private static String again(Handle handle, long leaseMs) throws InterruptedException {
        if (handle.lock == null) {
            return "error it holds nothing";
        }
        Long fence = Library.acquire(handle.lock, leaseMs, 0);
        if (fence == null) {
            return "refused";
        }
        handle.fence = fence;
        handle.count += 1;
        return "held " + handle.lock.getHoldCount();
    }

    private String contend(String name, String[] more) throws Exception {
        int tasks = Integer.parseInt(more[2]);
        int rounds = Integer.parseInt(more[3]);
        ExecutorService crew = Executors.newFixedThreadPool(tasks);
        List<Future<?>> running = new ArrayList<>();
        for (int task = 0; task < tasks; task += 1) {
            Path file = Path.of(more[1]);
            Path aside = Path.of(more[1] + "." + ProcessHandle.current().pid() + "." + name + "-" + task);
            running.add(crew.submit(() -> {
                RLock lock = library.lock(more[0]);
                for (int round = 0; round < rounds; round += 1) {
                    countUp(lock, Long.parseLong(more[4]), file, aside);
                }
                return null;
            }));
        }
        for (Future<?> task : running) {
            task.get();
        }
        crew.shutdown();
        return "done " + tasks * rounds;
    }

    private static void countUp(RLock lock, long leaseMs, Path file, Path aside) throws Exception {
        Library.acquire(lock, leaseMs, Library.FOREVER);
        int number = Integer.parseInt(Files.readString(file).trim());
        Thread.yield();
        // Renamed, so that whoever reads it without holding the lock sees a number, too.
        Files.writeString(aside, Integer.toString(number + 1));
        Files.move(aside, file, StandardCopyOption.ATOMIC_MOVE);
        if (!Library.release(lock)) {
            throw new IllegalStateException("a release failed");
        }
    }
}
