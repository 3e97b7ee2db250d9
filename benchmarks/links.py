"""A slow network on this machine: TCP proxies on loopback that limit a link's rate.

TLS passes through untouched. What counts are the bytes that TCP carries; on a real network
its headers, about 4%, come on top.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from fedsage.files import write_json

Way: TypeAlias = Literal["up", "down"]
Result = TypeVar("Result")
LOOPBACK = "127.0.0.1"
CHUNK = 8 * 1024  # bytes, after which connections on one link take turns
AGAIN = 0.2  # seconds that TCP takes to notice a loss
BURST = 0.02  # seconds of unused rate that a link makes up for, as sleeping is inexact


class Bucket:
    """One direction of a link: a token bucket, for all connections on it together."""

    def __init__(self, mbit: float) -> None:
        self.rate = mbit * 1e6 / 8  # bytes a second
        self.free = 0.0  # when all that was taken is through

    def take(self, num_bytes: int) -> float:
        """Take tokens for some bytes; the moment when the last of them is through."""
        begin = max(self.free, time.monotonic() - BURST)
        self.free = begin + num_bytes / self.rate
        return self.free


class Link:
    """Both directions of a link, each with the full rate."""

    def __init__(self, mbit: float, latency: float = 0.0) -> None:
        self.latency = latency  # seconds, one way
        self.loss = 0.0  # share of chunks that have to be sent again, which takes a moment
        self.cut = False  # nothing passes, and nobody is told
        self.buckets: dict[Way, Bucket] = {"up": Bucket(mbit), "down": Bucket(mbit)}

    def limit(self, mbit: float) -> None:
        """Change the rate of both directions."""
        for bucket in self.buckets.values():
            bucket.rate = mbit * 1e6 / 8


class Proxy:
    """Passes connections on to another port of this machine, over a link; counts bytes."""

    def __init__(self, link: Link, target: int) -> None:
        self.link, self.target, self.port = link, target, 0
        self.num_bytes: dict[Way, int] = {"up": 0, "down": 0}

    async def listen(self) -> asyncio.Server:
        """Take connections from now on, on a port that was free."""
        server = await asyncio.start_server(self.connected, LOOPBACK, 0)
        self.port = int(server.sockets[0].getsockname()[1])
        return server

    async def connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection, until both directions are at their end or one breaks."""
        writers, tasks = [writer], list[asyncio.Task[None]]()
        try:
            there, to_there = await asyncio.open_connection(LOOPBACK, self.target)
            writers.append(to_there)
            tasks.append(asyncio.create_task(self.carry("up", reader, to_there)))
            tasks.append(asyncio.create_task(self.carry("down", there, writer)))
            await asyncio.gather(*tasks)
        except (OSError, asyncio.CancelledError):  # refused, broken off, or all is closed
            for one in writers:
                one.transport.abort()
        finally:
            for task in tasks:
                task.cancel()
            for one in writers:
                one.close()

    async def carry(
        self, way: Way, source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        """One direction: read no faster than the link, and write what has arrived."""
        loop, bucket, arrival = asyncio.get_running_loop(), self.link.buckets[way], 0.0
        while chunk := await source.read(CHUNK):
            while self.link.cut:
                await asyncio.sleep(0.05)
            through = bucket.take(len(chunk))
            self.num_bytes[way] += len(chunk)
            # Timers of one moment may fire in any order: no two chunks have the same moment.
            arrival = max(max(through, loop.time()) + self.link.latency, arrival + 1e-6)
            if self.link.loss and random.random() < self.link.loss:
                arrival += AGAIN
            loop.call_at(arrival, arrive, sink, chunk)
            await asyncio.sleep(through - loop.time())
        await asyncio.sleep(arrival - loop.time())
        sink.write_eof()


def arrive(sink: asyncio.StreamWriter, chunk: bytes) -> None:
    """Write what came over the link, unless nobody is there any more."""
    if not sink.is_closing():
        sink.write(chunk)


class Network:
    """A thread in which proxies run until it is closed."""

    def __init__(self) -> None:
        self.servers: list[asyncio.Server] = []
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def proxy(self, link: Link, target: int) -> Proxy:
        """A proxy in front of a port, which listens already."""
        made = Proxy(link, target)
        self.servers.append(self.wait_for(made.listen()))
        return made

    def close(self) -> None:
        """End all that listens and every connection."""
        self.wait_for(self.end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def end(self) -> None:
        """In the thread: close what listens, cancel connections and wait for their end."""
        for server in self.servers:
            server.close()
        others = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.01)  # sockets are closed a moment later

    def wait_for(self, work: Coroutine[object, object, Result]) -> Result:
        """What comes of some work in the thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()


def connect_to(proxy: Proxy, kit: Path) -> None:
    """Let an owner reach the server through a proxy.

    Only the port changes: the host stays the one that the server's certificate names.
    """
    file = kit / "startup" / "fed_client.json"
    startup = json.loads(file.read_text())
    (server,) = startup["servers"]
    host = server["service"]["target"].rpartition(":")[0]
    server["service"]["target"] = f"{host}:{proxy.port}"
    write_json(file, startup)
