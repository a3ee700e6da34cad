"""Locks of Python libraries: `peer.py bench|talk LIBRARY …`. ../README.md describes both conversations."""

import json
import os
import struct
import sys
import threading
import time
import traceback

import crew
import libraries

LIBRARIES = {
    "redis-py": (libraries.RedisPy, crew.Threads),
    "redis-py-async": (libraries.RedisPyAsync, crew.Loop),
    "python-redis-lock": (libraries.PythonRedisLock, crew.Threads),
}
BENCH_LEASE_MS = 30_000
# The sleep of redis-py: its own is 100 ms. Shorter ones make those who wait slow down the one who has the lock.
BENCH_POLL_MS = 100
TALK_POLL_MS = 10
NEVER = (1 << 64) - 1
USAGE = f"usage: bench LIBRARY [poll_ms=N] | talk LIBRARY URL [poll_ms=N]; LIBRARY: {', '.join(LIBRARIES)}"

SAYING = threading.Lock()


def say(line):
    with SAYING:
        sys.stdout.write(line.replace("\n", " ") + "\n")
        sys.stdout.flush()


def listen(lines):
    """Hands on the lines of standard input. When they end, so does the process: whoever started it is gone."""

    def read():
        for line in sys.stdin:
            lines.put(line.strip())
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()


class MachineClock:
    """The wall clock as it was at the start, and since then one that nobody sets: all processes of a machine read it alike."""

    def __init__(self):
        looks = []
        for _ in range(100):
            before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
            looks.append((after - before, wall - (before + after) // 2))
        self.offset_ns = min(looks)[1]

    def now_ns(self):
        return time.monotonic_ns() + self.offset_ns


class Bench:
    """The benchmark's critical section, again and again."""

    def __init__(self, tasks, open_library):
        self.tasks, self.open_library = tasks, open_library
        self.clock = MachineClock()

    async def main(self):
        lines = self.tasks.queue()
        listen(lines)
        self.job = json.loads(await lines.get())
        self.library = self.open_library(self.job["url"])
        await self.library.connect()
        self.counter = os.open(self.job["counter"], os.O_RDWR | os.O_CREAT, 0o644)
        if os.fstat(self.counter).st_size < 16:
            os.pwrite(self.counter, bytes(16), 0)
        held = await self.library.acquire(f"{self.job['name']}-{os.getpid()}", BENCH_LEASE_MS, 10_000)
        if held is not None:
            await self.library.release(held)
        say(f"ready {self.library.what()}")
        await lines.get()
        start_ns = self.clock.now_ns()
        tasks = self.job["tasks"]
        passes = await self.tasks.gather([self.contend(-(-self.job["most"] // tasks)) for _ in range(tasks)])
        elapsed_us = (self.clock.now_ns() - start_ns) // 1_000
        with open(self.job["passes"], "wb") as file:
            for words in passes:
                file.write(b"".join(words))
        say(json.dumps({"elapsed_us": elapsed_us, "traffic": {"requests": None, "pushes": 0}}))

    async def contend(self, most):
        clock, library, name = self.clock, self.library, self.job["name"]
        end_ns = clock.now_ns() + self.job["time_ms"] * 1_000_000
        passes = []
        while len(passes) < most:
            asked_ns = clock.now_ns()
            left_ms = min((end_ns - asked_ns) // 1_000_000, 3_600_000)
            if left_ms < 1:
                break
            held = await library.acquire(name, BENCH_LEASE_MS, left_ms)
            ended_ns = clock.now_ns()
            if held is None:
                # Some give up a pause before the end: no use to ask again.
                passes.append(struct.pack("<6Q", asked_ns, ended_ns, 0, NEVER, 0, 0))
                break
            count, released_ns = struct.unpack("<2Q", os.pread(self.counter, 16, 0))
            await self.tasks.pause()
            os.pwrite(self.counter, struct.pack("<2Q", count + 1, clock.now_ns()), 0)
            if not await library.release(held):
                raise RuntimeError("a release failed")
            since_ns = max(ended_ns - released_ns, 0) if asked_ns <= released_ns else NEVER
            passes.append(struct.pack("<6Q", asked_ns, ended_ns, 1, since_ns, 0, 0))
        return passes


class Talk:
    """Does what it is told, line by line; each handle in the order in which it was told."""

    def __init__(self, tasks, open_library, url):
        self.tasks, self.open_library, self.url = tasks, open_library, url
        self.handles, self.held = {}, {}

    async def main(self):
        self.library = self.open_library(self.url)
        await self.library.connect()
        lines = self.tasks.queue()
        listen(lines)
        say("ready")
        while True:
            words = (await lines.get()).split()
            if len(words) < 2:
                say(f"{' '.join(words) or '-'} error a command and a handle are wanted")
                continue
            if words[1] not in self.handles:
                self.handles[words[1]] = self.tasks.queue()
                self.tasks.spawn(self.serve(words[1]))
            self.handles[words[1]].put(words)

    async def serve(self, handle):
        while True:
            command, _, *words = await self.handles[handle].get()
            try:
                say(f"{handle} {await self.answer(command, handle, words)}")
            except Exception as error:
                say(f"{handle} error {type(error).__name__}: {error}")

    async def answer(self, command, handle, words):
        match command, words:
            case ("try", [key, lease_ms]):
                return await self.acquire(handle, key, int(lease_ms), 0)
            case ("lock", [key, lease_ms, wait_ms]):
                return await self.acquire(handle, key, int(lease_ms), int(wait_ms))
            case ("unlock", []):
                if handle not in self.held:
                    return "error it holds nothing"
                return "released" if await self.library.release(self.held.pop(handle)) else "lost"
            case ("holds", []):
                return "yes" if await self.library.holds(handle) else "no"
            case ("again" | "fence", []):
                return "unsupported"
            case ("contend", [key, file, tasks, rounds, lease_ms]):
                rounds, lease_ms = int(rounds), int(lease_ms)
                counts = [self.contend(key, file, f"{handle}-{at}", rounds, lease_ms) for at in range(int(tasks))]
                return f"done {sum(await self.tasks.gather(counts))}"
        return f"error what is {command} with {len(words)} more words?"

    async def acquire(self, handle, key, lease_ms, wait_ms):
        if handle in self.held:
            return "error it holds something"
        if lease_ms <= 0:
            return "error a lease is wanted"
        held = await self.library.acquire(key, lease_ms, wait_ms)
        if held is None:
            return "refused"
        self.held[handle] = held
        return "held"

    async def contend(self, key, file, name, rounds, lease_ms):
        for _ in range(rounds):
            held = await self.library.acquire(key, lease_ms, None)
            with open(file) as text:
                number = int(text.read())
            await self.tasks.pause()
            # Renamed, so that whoever reads it without holding the lock sees a number, too.
            aside = f"{file}.{os.getpid()}.{name}"
            with open(aside, "w") as text:
                text.write(str(number + 1))
            os.replace(aside, file)
            if not await self.library.release(held):
                raise RuntimeError("a release failed")
        return rounds


def main(arguments):
    settings = dict(word.split("=", 1) for word in arguments if "=" in word and "://" not in word)
    words = [word for word in arguments if "=" not in word or "://" in word]
    known = settings.keys() <= {"poll_ms"}
    match words:
        case ["bench", name] if name in LIBRARIES and known:
            library, tasks = LIBRARIES[name]
            poll_ms = int(settings.get("poll_ms", BENCH_POLL_MS))
            tasks = tasks()
            tasks.run(Bench(tasks, lambda url: library(url, poll_ms)).main())
        case ["talk", name, url] if name in LIBRARIES and known:
            library, tasks = LIBRARIES[name]
            poll_ms = int(settings.get("poll_ms", TALK_POLL_MS))
            tasks = tasks()
            tasks.run(Talk(tasks, lambda _: library(url, poll_ms), url).main())
        case _:
            sys.exit(USAGE)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Exception:
        traceback.print_exc()
        os._exit(1)
    # Not by the usual way out: a thread still reads standard input.
    os._exit(0)
