"""The slow link of ``benchmarks/slow_link.py``: as fast as it says, and no byte altered."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from benchmarks.links import LOOPBACK, Link, Network, Proxy
from fedsage.rng import generator

MBIT = 8.0  # a million bytes a second


def echo(listener: socket.socket) -> None:
    """Send back what comes, on every connection, until the listener is closed."""

    def answer(one: socket.socket) -> None:
        with one:
            while chunk := one.recv(1 << 16):
                one.sendall(chunk)

    while True:
        try:
            one, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=answer, args=[one], daemon=True).start()


@pytest.fixture
def echo_port() -> Iterator[int]:
    with socket.create_server((LOOPBACK, 0)) as listener:
        thread = threading.Thread(target=echo, args=[listener])
        thread.start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)  # ends accept
    thread.join()


@pytest.fixture
def network() -> Iterator[Network]:
    with closing(Network()) as made:
        yield made


def there_and_back(proxy: Proxy, body: bytes) -> bytes:
    """What an echo over the link makes of some bytes."""
    with (
        socket.create_connection((LOOPBACK, proxy.port)) as one,
        ThreadPoolExecutor(1) as pool,
    ):
        sending = pool.submit(one.sendall, body)
        sending.add_done_callback(lambda _: one.shutdown(socket.SHUT_WR))
        back = bytearray()
        while chunk := one.recv(1 << 16):
            back += chunk
        return bytes(back)


def seconds_for(proxies: list[Proxy], body: bytes) -> float:
    """How long it takes until all of them have the body back, unaltered."""
    begin = time.monotonic()
    with ThreadPoolExecutor(len(proxies)) as pool:
        for back in pool.map(lambda one: there_and_back(one, body), proxies):
            assert back == body
    return time.monotonic() - begin


def body_of(num_bytes: int) -> bytes:
    return generator(0, "body").bytes(num_bytes)


@pytest.mark.slow
def test_a_link_has_its_rate_and_alters_no_byte(network: Network, echo_port: int) -> None:
    proxy = network.proxy(Link(MBIT), echo_port)
    assert seconds_for([proxy], body_of(1_500_000)) == pytest.approx(1.5, rel=0.15)
    assert proxy.num_bytes == {"up": 1_500_000, "down": 1_500_000}


@pytest.mark.slow
@pytest.mark.parametrize(("shared", "seconds"), [(True, 1.2), (False, 0.6)])
def test_those_who_share_a_link_share_its_rate(
    network: Network, echo_port: int, shared: bool, seconds: float
) -> None:
    link = Link(MBIT)
    proxies = [network.proxy(link if shared else Link(MBIT), echo_port) for _ in range(2)]
    assert seconds_for(proxies, body_of(600_000)) == pytest.approx(seconds, rel=0.15)


@pytest.mark.slow
def test_connections_through_one_proxy_share_its_link(network: Network, echo_port: int) -> None:
    proxy = network.proxy(Link(MBIT), echo_port)
    assert seconds_for([proxy, proxy], body_of(400_000)) == pytest.approx(0.8, rel=0.15)
    assert proxy.num_bytes["up"] == 800_000


@pytest.mark.slow
def test_latency_delays_each_way_and_takes_no_rate(network: Network, echo_port: int) -> None:
    proxy = network.proxy(Link(MBIT, latency=0.15), echo_port)
    assert 0.3 <= seconds_for([proxy], body_of(10)) < 0.4
    assert seconds_for([proxy], body_of(800_000)) == pytest.approx(1.1, rel=0.15)


def is_gone(one: socket.socket) -> bool:
    """Whether the other side has closed a connection."""
    try:
        return one.recv(1) == b""
    except ConnectionError:
        return True


def test_who_connects_where_nobody_listens_is_turned_away(network: Network) -> None:
    with socket.create_server((LOOPBACK, 0)) as closed:
        port = int(closed.getsockname()[1])
    proxy = network.proxy(Link(MBIT), port)
    with socket.create_connection((LOOPBACK, proxy.port), timeout=5) as one:
        assert is_gone(one)


def test_a_closed_network_neither_listens_nor_holds_connections(echo_port: int) -> None:
    with closing(Network()) as network:
        proxy = network.proxy(Link(MBIT), echo_port)
        one = socket.create_connection((LOOPBACK, proxy.port), timeout=5)
        one.sendall(b"x")
        assert one.recv(1) == b"x"
    with one:
        assert is_gone(one)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, proxy.port))
