"""A page on loopback for the people of one party: what happens, and what they can decide.

The address holds a random token, and nothing is shown or done without it. Requests must name
this very host, so that no other site can be made to look like it, and writes must come from the
page itself. Nothing is fetched from a network.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedsage.errors import ConfigError, FedSageError
from fedsage.federation.consent.decide import decide
from fedsage.federation.console.page import HIGH, WIDE, Scene, scene_of
from fedsage.federation.kits.kit import Kit
from fedsage.federation.owner.pause import steer
from fedsage.federation.status.from_kit import watch
from fedsage.federation.status.status import Status
from fedsage.readable import counted, size

PAUSE = 1.0  # seconds between two looks
ALIVE = 15.0  # seconds after which a silent stream says that it is still there
LONGEST = 4096  # bytes of what the page may send
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def templates() -> Environment:
    """Templates that escape whatever they are given."""
    made = Environment(
        loader=PackageLoader("fedsage.federation.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"size": size, "clock": clock, "counted": counted}
    made.globals |= {"WIDE": WIDE, "HIGH": HIGH}
    return made


def clock(seconds: float) -> str:
    """A point in time, for people on this machine."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


class Console(ThreadingHTTPServer):
    """Serves the page of one kit.

    Args:
        kit: Of any party.
        port: To listen on; 0 for any free one.
        look: The party's status, again and again.
    """

    daemon_threads = True

    def __init__(
        self, kit: Kit, port: int = 0, look: Callable[[Kit], Iterator[Status]] = watch
    ) -> None:
        super().__init__(("127.0.0.1", port), Visit)
        self.kit, self.token = kit, secrets.token_urlsafe(32)
        self.templates = templates()
        self.seen: Status | None = None
        self.stopped = threading.Event()
        self.looking = threading.Thread(target=self.keep_looking, args=(look,), daemon=True)
        self.looking.start()

    @property
    def hosts(self) -> tuple[str, str]:
        """The names by which this server may be called."""
        return f"127.0.0.1:{self.server_port}", f"localhost:{self.server_port}"

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{self.hosts[0]}/{self.token}/"

    def keep_looking(self, look: Callable[[Kit], Iterator[Status]]) -> None:
        """Keep the latest status."""
        for found in look(self.kit):
            self.seen = found
            if self.stopped.is_set():
                return

    def server_close(self) -> None:
        """Stop listening, and end all streams."""
        self.stopped.set()
        super().server_close()

    def scene(self) -> Scene | None:
        """What the page shows now; None before the first look."""
        return None if self.seen is None else scene_of(self.kit, self.seen)

    def fragment(self) -> str:
        """The changing part of the page."""
        try:
            scene, wrong = self.scene(), ""
        except FedSageError as error:
            scene, wrong = None, str(error)
        page = self.templates.get_template("scene.html.jinja")
        return page.render(scene=scene, kit=self.kit, wrong=wrong)

    def do(self, asked: dict[str, Any]) -> str:
        """What a button asks for; returns words for the page."""
        if self.kit.role != "owner":
            raise ConfigError(f"The {self.kit.role} has nothing to decide here.")
        what, ours = asked.get("action"), self.kit.ours
        if what in ("approve", "always", "decline"):
            yes, because = what != "decline", str(asked.get("because", ""))
            shown = str(asked.get("sha256"))
            found = decide(ours, shown, yes, because, always=what == "always")
            return f"You {'take part' if yes else 'do not take part'} in {found.run}."
        run = self.seen.run if self.seen else None
        if run is None or run != asked.get("run"):
            raise ConfigError("That run is not running any more.")
        steer(ours, run, str(what))
        return f"Noted for {run}, from the next round on: {what}."


class Visit(BaseHTTPRequestHandler):
    """One request."""

    server: Console
    server_version, sys_version = "fedsage", ""
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, format: str, *arguments: Any) -> None:
        """Requests hold the token, so they are not logged."""

    def part(self) -> str | None:
        """Which part of the page is asked for; None if the request may not be answered."""
        if self.headers.get("Host", "") not in self.server.hosts:
            return None
        _, token, *rest = [*self.path.split("/", 2), ""]
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return None
        return rest[0]

    def do_GET(self) -> None:
        """The page, or its stream of changes."""
        part = self.part()
        if part == "":
            self.page()
        elif part == "events":
            self.events()
        else:
            self.answer(HTTPStatus.NOT_FOUND, "There is nothing here.")

    def do_POST(self) -> None:
        """A decision; only from the page itself."""
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            length = -1
        self.close_connection = True
        if self.part() != "do" or not 0 <= length <= LONGEST:
            return self.answer(HTTPStatus.NOT_FOUND, "There is nothing here.")
        if not self.own():
            return self.answer(HTTPStatus.FORBIDDEN, "This did not come from the page.")
        try:
            asked = json.loads(self.rfile.read(length))
            words = self.server.do(dict(asked))
        except FedSageError as error:
            return self.answer(HTTPStatus.CONFLICT, str(error))
        except (ValueError, TypeError):
            return self.answer(HTTPStatus.BAD_REQUEST, "That is not a decision.")
        self.answer(HTTPStatus.OK, words)

    def own(self) -> bool:
        """Whether a write comes from a script of our page, as its browser says."""
        origins = [f"http://{host}" for host in self.server.hosts]
        return (
            self.headers.get("Origin") in origins
            and self.headers.get("Sec-Fetch-Site", "same-origin") == "same-origin"
            and self.headers.get("Content-Type") == "application/json"
        )

    def page(self) -> None:
        """The whole page, with scripts and styles that only it may have."""
        nonce = secrets.token_urlsafe(16)
        page = self.server.templates.get_template("console.html.jinja")
        text = page.render(kit=self.server.kit, nonce=nonce, fragment=self.server.fragment())
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        self.answer(HTTPStatus.OK, text, "text/html", {"Content-Security-Policy": policy})

    def answer(
        self,
        code: HTTPStatus,
        text: str,
        kind: str = "text/plain",
        more: dict[str, str] | None = None,
    ) -> None:
        """A whole answer."""
        body = text.encode()
        about = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        self.send_response(code)
        for name, value in {**HEADERS, **about, **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def events(self) -> None:
        """The changing part of the page, whenever it has changed."""
        self.close_connection = True
        self.send_response(HTTPStatus.OK)
        for name, value in {**HEADERS, "Content-Type": "text/event-stream"}.items():
            self.send_header(name, value)
        self.end_headers()
        before, silent = "", 0.0
        try:
            while not self.server.stopped.wait(PAUSE):
                now, silent = self.server.fragment(), silent + PAUSE
                if now != before:
                    self.wfile.write(f"data: {json.dumps(now)}\n\n".encode())
                elif silent >= ALIVE:
                    self.wfile.write(b": still here\n\n")
                else:
                    continue
                self.wfile.flush()
                before, silent = now, 0.0
        except OSError:
            pass  # the reader has gone
