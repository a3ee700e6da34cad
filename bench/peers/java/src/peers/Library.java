package peers;

import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisTimeoutException;
import org.redisson.config.Config;

/** One of Redisson's locks. A thread is an owner: a lock is released by the thread that acquired it. */
final class Library {
    /** A wait without end, as tryLockAndGetToken also takes it. */
    static final long FOREVER = -1;

    final Kind kind;
    private final RedissonClient client;

    /** Reaches the server, or as many of a cluster as are named. */
    Library(Kind kind, String urls, boolean cluster, long watchdogMs) {
        this.kind = kind;
        Config config = new Config();
        config.setLockWatchdogTimeout(watchdogMs);
        if (cluster) {
            config.useClusterServers().addNodeAddress(urls.split(","));
        } else {
            config.useSingleServer().setAddress(urls);
        }
        client = Redisson.create(config);
    }

    static String version() {
        return Redisson.class.getPackage().getImplementationVersion();
    }

    RLock lock(String key) {
        return switch (kind) {
            case PLAIN -> client.getLock(key);
            case FAIR -> client.getFairLock(key);
            case FENCED -> client.getFencedLock(key);
            case SPIN -> client.getSpinLock(key);
        };
    }

    /**
     * Acquires it for the current thread. It waits so many milliseconds, not at all if that is 0, and without end if it is FOREVER. A
     * lease of 0 is one that the library renews. It returns the fence, 0 if the lock has none, and null if it was refused.
     */
    static Long acquire(RLock lock, long leaseMs, long waitMs) throws InterruptedException {
        long lease = leaseMs == 0 ? -1 : leaseMs;
        if (lock instanceof RFencedLock fenced) {
            try {
                // In 4.7 lockAndGetToken(lease, unit) forgets the lease.
                return fenced.tryLockAndGetToken(waitMs, lease, TimeUnit.MILLISECONDS);
            } catch (RedisTimeoutException e) {
                if (waitMs != FOREVER && isRefusal(e)) {
                    return null;
                }
                throw e;
            }
        }
        if (waitMs == FOREVER) {
            lock.lock(lease, TimeUnit.MILLISECONDS);
            return 0L;
        }
        return lock.tryLock(waitMs, lease, TimeUnit.MILLISECONDS) ? 0L : null;
    }

    /** That the time is over while it subscribes is an exception, except in tryLock. That an answer is late is another. */
    static boolean isRefusal(Throwable failure) {
        Throwable cause = failure instanceof CompletionException ? failure.getCause() : failure;
        return cause != null && cause.getClass() == RedisTimeoutException.class;
    }

    /** Returns whether the current thread still held it. */
    static boolean release(RLock lock) {
        try {
            lock.unlock();
            return true;
        } catch (IllegalMonitorStateException e) {
            return false;
        }
    }
}
