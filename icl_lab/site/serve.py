"""The site on this machine: built in memory, shown to 127.0.0.1 alone, built again as runs finish; writes nothing."""

import json
import mimetypes
import os
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from icl_lab.errors import LabError, RunFailed
from icl_lab.runs.store import Store
from icl_lab.site import findings, live, pages
from icl_lab.site.build import Site, Stock, build
from icl_lab.site.findings import Findings

HOST = "127.0.0.1"
NAMES = (HOST, "localhost", "[::1]")  # what a browser on this machine may call this server
LOOK = 5.0  # seconds between two looks for what has changed
JUDGE = 60.0  # seconds at least between two judgements of all claims, which take longer than all else
# Pages of studies carry their own styles and scripts inside; nothing in them may ask anybody either.
COPIED = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src 'self' data:"


class Shown:
    """The site as it is now. ``refresh`` builds it again where something has changed."""

    def __init__(self, store: Store, files: Path) -> None:
        self.store, self.files = store, files
        self.site: Site = {}
        self.built = ""
        self.runs = 0
        self._state: object = None
        self._findings: Findings | None = None
        self._judged = 0.0
        self._judged_for: object = None

    def refresh(self) -> bool:
        """Builds the site where runs or studies have changed since; returns whether it did."""
        state = self._look()
        late = self._judged_for != self._state and time.monotonic() - self._judged > JUDGE
        if state == self._state and not late:
            return False
        if late:
            self._findings = None
        stock = Stock.of(self.store, self.files, lambda store, files: self._judge(store, files, state))
        # One assignment: a request meets the old site or the new one.
        self.site = build(stock, serving=True)
        self.runs, self.built, self._state = len(stock.cards), time.strftime("%H:%M:%S"), state
        return True

    def _judge(self, store: Store, files: Path, state: object) -> Findings:
        """The findings of this state of the results, or for a while those of an earlier one."""
        if self._findings is None or time.monotonic() - self._judged > JUDGE:
            self._findings = findings.judged(store, files)
            self._judged, self._judged_for = time.monotonic(), state
        return self._findings

    def _look(self) -> object:
        """What changes when a run begins or finishes, or a study is written."""
        root = self.store.root
        names = ("grid.csv", "env.json", "spec.json", "swap-*/grid.csv")
        runs = [path for name in names for path in root.glob(f"runs/*/*/*/seed-*/{name}")]
        studies = [path for pattern in ("*", "*/*") for path in root.glob(f"{pattern}/[!.]*.[jmh]*") if path.is_file()]
        found = []
        for path in (*runs, *studies):
            try:
                state = path.stat()
            except OSError:  # gone meanwhile: another state at the next look
                continue
            found.append((str(path), state.st_mtime_ns, state.st_size))
        return sorted(found)


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD for files of the site, by their exact names, and for the runs in work."""

    shown: Shown
    port: int
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "icl-lab", ""
    timeout = 30

    def do_GET(self) -> None:
        """Answers with a page, a file, or where the runs in work stand."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        """Answers as GET does, without the content."""
        self._answer(body=False)

    def _answer(self, body: bool) -> None:
        if self.headers.get_all("Host") not in [[f"{name}:{self.port}"] for name in NAMES]:
            # Another name that leads here is somebody's who wants to read these pages from their own (DNS rebinding).
            self._send(HTTPStatus.MISDIRECTED_REQUEST, b"This server answers to 127.0.0.1 alone.\n", "text/plain", body)
            return
        name = unquote(urlsplit(self.path).path).removeprefix("/") or "index.html"
        if name == "live.json":
            told = live.told(self.shown.store.root, self.shown.runs, self.shown.built)
            self._send(HTTPStatus.OK, json.dumps(told).encode(), "application/json", body)
            return
        content = self.shown.site.get(name)
        data = _read(content) if isinstance(content, Path) else content
        if data is None:
            self._send(HTTPStatus.NOT_FOUND, b"There is no such page.\n", "text/plain", body)
            return
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        policy = COPIED if isinstance(content, Path) else pages.LIVE
        self._send(HTTPStatus.OK, data, kind, body, policy)

    def _send(self, status: HTTPStatus, data: bytes, kind: str, body: bool, policy: str = COPIED) -> None:
        self.send_response(status)
        text = kind.startswith("text/") or kind in ("application/json", "image/svg+xml")
        self.send_header("Content-Type", f"{kind}; charset=utf-8" if text else kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", f"{policy}; frame-ancestors 'none'")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the terminal is for what the server has to tell."""


def _read(path: Path) -> bytes | None:
    """The content of a copied file as it is now; None where it is gone, or has become a link."""
    try:
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(number, "rb") as file:
            return file.read()
    except OSError:
        return None


class Server(ThreadingHTTPServer):
    """A server for this machine. A request that breaks off is nobody's concern."""

    daemon_threads = True
    allow_reuse_address = os.name == "posix"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of connections that broke off."""


def bound(shown: Shown, port: int) -> Server:
    """Returns a server that listens on 127.0.0.1 and does not answer yet; ``RunFailed`` where the port is taken.

    Port 0 takes any that is free.
    """

    class Here(Handler):
        pass

    Here.shown = shown
    try:
        server = Server((HOST, port), Here)
    except OSError as error:
        raise RunFailed(
            f"port {port} of {HOST} cannot be used: {error.strerror or error}; another one: --port {port + 1}"
        ) from None
    Here.port = server.server_address[1]
    return server


def serve(store: Store, files: Path, port: int, say: Callable[[str], object]) -> None:
    """Shows a results folder until Ctrl-C."""
    shown = Shown(store, files)
    server = bound(shown, port)  # before the site is built, which takes longer than to say that the port is taken
    try:
        say("building the pages ..")
        shown.refresh()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://{HOST}:{server.server_address[1]}"
        say(
            f"{address}/ ({shown.runs} runs), {address}/live.html for runs in work. Ctrl-C ends it; nothing is written."
        )
        while True:
            time.sleep(LOOK)
            try:
                if shown.refresh():
                    say(f"{shown.built}: built again, {shown.runs} runs.")
            except (LabError, OSError) as reason:  # a file that is being replaced: the next look finds it whole
                say(f"not built again this time: {reason}")
    finally:
        server.server_close()
