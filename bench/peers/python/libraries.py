"""The locks of redis-py and of python-redis-lock, each behind the same four calls.

`acquire` waits so many milliseconds, not at all if that is 0, and without end if it is None. It returns what is held, or None.
`release` returns whether the library says that it still held the lock.

All of them are coroutines. Those around a library that blocks never wait for anything: see crew.Threads.
"""

import math
import time

import hiredis
import redis
import redis.asyncio
import redis_lock
from redis.exceptions import LockError

# A pool refuses to open more than 100 unless it is told otherwise; every task that waits in BLPOP keeps one.
CONNECTIONS_MAX = 10_000


class RedisPy:
    """redis.lock.Lock. It polls, 100 ms apart unless told otherwise."""

    def __init__(self, url, poll_ms):
        self.poll_ms = poll_ms
        self.client = redis.Redis.from_url(url, max_connections=CONNECTIONS_MAX)

    def what(self):
        return f"redis-py {redis.__version__} with hiredis {hiredis.__version__}, threads, sleep {self.poll_ms} ms"

    async def connect(self):
        self.client.ping()

    def lock(self, key, lease_ms):
        return self.client.lock(key, timeout=lease_ms / 1000, sleep=self.poll_ms / 1000)

    async def acquire(self, key, lease_ms, wait_ms):
        lock = self.lock(key, lease_ms)
        held = lock.acquire(blocking=wait_ms != 0, blocking_timeout=seconds(wait_ms))
        return lock if held else None

    async def release(self, held):
        try:
            held.release()
        except LockError:
            return False
        return True

    async def holds(self, key):
        return self.lock(key, 1_000).locked()


class RedisPyAsync:
    """redis.asyncio.lock.Lock, the same with asyncio."""

    def __init__(self, url, poll_ms):
        self.poll_ms = poll_ms
        self.client = redis.asyncio.Redis.from_url(url, max_connections=CONNECTIONS_MAX)

    def what(self):
        return f"redis-py {redis.__version__} with hiredis {hiredis.__version__}, asyncio, sleep {self.poll_ms} ms"

    async def connect(self):
        await self.client.ping()

    def lock(self, key, lease_ms):
        return self.client.lock(key, timeout=lease_ms / 1000, sleep=self.poll_ms / 1000)

    async def acquire(self, key, lease_ms, wait_ms):
        lock = self.lock(key, lease_ms)
        held = await lock.acquire(blocking=wait_ms != 0, blocking_timeout=seconds(wait_ms))
        return lock if held else None

    async def release(self, held):
        try:
            await held.release()
        except LockError:
            return False
        return True

    async def holds(self, key):
        return await self.lock(key, 1_000).locked()


class PythonRedisLock:
    """redis_lock.Lock. It waits in BLPOP for a signal. Leases and waits are whole seconds: both are rounded up."""

    def __init__(self, url, _poll_ms):
        # redis-py gives up reading after 5 s and asks again; BLPOP may take as long as a lease.
        self.client = redis.Redis.from_url(url, max_connections=CONNECTIONS_MAX, socket_timeout=None)

    def what(self):
        return (
            f"python-redis-lock {redis_lock.__version__} on redis-py {redis.__version__}"
            f" with hiredis {hiredis.__version__}, threads"
        )

    async def connect(self):
        self.client.ping()

    async def acquire(self, key, lease_ms, wait_ms):
        lease_s = math.ceil(lease_ms / 1000)
        lock = redis_lock.Lock(self.client, key, expire=lease_s)
        if not wait_ms:
            return lock if lock.acquire(blocking=wait_ms is None) else None
        end = time.monotonic() + wait_ms / 1000
        while True:
            # It takes no wait that is longer than the lease.
            wait_s = min(max(math.ceil(end - time.monotonic()), 1), lease_s)
            if lock.acquire(timeout=wait_s):
                return lock
            if end <= time.monotonic():
                return None

    async def release(self, held):
        try:
            held.release()
        except redis_lock.NotAcquired:
            return False
        return True

    async def holds(self, key):
        return redis_lock.Lock(self.client, key).locked()


def seconds(wait_ms):
    """None stays what it is, and 0 becomes it: with blocking=False there is no time to wait."""
    return wait_ms / 1000 if wait_ms else None
