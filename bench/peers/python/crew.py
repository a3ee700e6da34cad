"""How tasks are run: as threads, or by asyncio. What they run is the same text, made of coroutines.

A coroutine that calls only what blocks never suspends itself; in a thread of its own it is run to its end by one step.
"""

import asyncio
import queue
import threading
import time


class Threads:
    """For libraries that block."""

    def run(self, main):
        step(main)

    def queue(self):
        waiting = queue.SimpleQueue()

        class Queue:
            put = waiting.put

            async def get(self):
                return waiting.get()

        return Queue()

    def spawn(self, coroutine):
        threading.Thread(target=step, args=(coroutine,), daemon=True).start()

    async def pause(self):
        """Lets others run."""
        time.sleep(0)

    async def gather(self, coroutines):
        """What each of them returned; what one of them raised."""
        outcomes = [None] * len(coroutines)

        def run(at, coroutine):
            try:
                outcomes[at] = (step(coroutine), None)
            except Exception as error:
                outcomes[at] = (None, error)

        threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in enumerate(coroutines)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _, error in outcomes:
            if error is not None:
                raise error
        return [result for result, _ in outcomes]


class Loop:
    """For libraries made for asyncio."""

    def __init__(self):
        self.loop = None
        self.spawned = set()

    def run(self, main):
        asyncio.run(self.remember(main))

    async def remember(self, main):
        self.loop = asyncio.get_running_loop()
        await main

    def queue(self):
        waiting, loop = asyncio.Queue(), self.loop

        class Queue:
            get = waiting.get

            def put(self, item):
                # Lines are read by a thread.
                loop.call_soon_threadsafe(waiting.put_nowait, item)

        return Queue()

    def spawn(self, coroutine):
        # The loop itself keeps only weak references.
        task = asyncio.ensure_future(coroutine)
        self.spawned.add(task)
        task.add_done_callback(self.spawned.discard)

    async def pause(self):
        """Lets others run."""
        await asyncio.sleep(0)

    async def gather(self, coroutines):
        return await asyncio.gather(*coroutines)


def step(coroutine):
    """Runs a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a coroutine waits where nobody would wake it")
