"""Text of API servers, plugins and objects can neither steer a terminal nor carry a credential to its reader."""

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from dovetail.kube import NO_PATIENCE, connect
from dovetail.observe.logs import JsonLines, TextLines
from dovetail.ports import NODES, ApiError
from dovetail.runtime.events import Event, ObjectReference, event_body
from tests.harness.stage import real_time, stage
from tests.unit.cli.running import Outcome, Program
from tests.unit.cli.terminals import terminal
from tests.unit.kube.test_transport import Server, connected, event, kubeconfig, stream
from tests.unit.kube.test_transport import answer as answered

pytestmark = stage(real_time)

# Erases the screen, sets the title, reverses the line, hides and joins characters, ends the line.
EVIL = (
    "\x1b[2J\x1b]0;owned\x07\x9b31m\x7f\r\u202ereversed\u2066\u200bzero\u200d"
    "\ufeff\u2028\u00ad\u034f\u3164\U000e0041\ufe0f"
)
JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQifQ.c2lnbmF0dXJlLXNpZ25hdHVyZQ"
SHORT = "hunter2-short-token"  # of no form that could be told: it is known because it was sent
KEY = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY1"
SECRETS = (JWT, SHORT, KEY, "hunter2")


def is_harmless(text: str) -> bool:
    """Printable lines, without what the eye cannot see."""
    ignorable = "\u034f\u3164\ufe0f"
    return all(line.isprintable() for line in text.split("\n")) and not any(c in text for c in ignorable)


def check(outcome: Outcome, *, told: str) -> None:
    """Whatever was printed is harmless, holds no secret, and still says what is wrong."""
    printed = outcome.out + outcome.err
    assert is_harmless(printed), repr(printed)
    assert [secret for secret in SECRETS if secret in printed] == []
    assert told in printed


# -- an API server -----------------------------------------------------------------------------------------------------


@contextmanager
def serving(message: Callable[[str], str], code: int) -> Iterator[str]:
    """A server on loopback that refuses everything, with a message made of the credentials that came."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            words = message(self.headers.get("Authorization", ""))
            body = json.dumps({"kind": "Status", "message": words, "code": code}).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("code", [401, 403, 422])
@pytest.mark.parametrize("token", [SHORT, JWT])
@pytest.mark.parametrize("command", ["explain", "record"])
def test_a_server_that_echoes_the_token_among_control_characters(
    dovetail: Program, command: str, token: str, code: int
) -> None:
    with serving(lambda sent: f"refused {EVIL} for {sent} {sent.removeprefix('Bearer ')} key {KEY}", code) as url:
        outcome = dovetail(command, "--kubeconfig", kubeconfig(dovetail.folder, url, token=token))
    assert outcome.code == 3
    check(outcome, told="refused")


def test_a_server_that_echoes_user_and_password(dovetail: Program) -> None:
    with serving(lambda sent: f"unknown: {sent}; hunter2 is no password", 401) as url:
        outcome = dovetail(
            "explain", "--kubeconfig", kubeconfig(dovetail.folder, url, username="u", password="hunter2")
        )
    check(outcome, told="is no password")
    assert "dTpodW50ZXIy" not in outcome.err


@pytest.mark.parametrize("body", [EVIL.encode() + f" Authorization: Bearer {SHORT}".encode(), f"{KEY} {JWT}".encode()])
async def test_a_page_of_a_proxy_instead_of_a_status(tmp_path: Path, body: bytes) -> None:
    async with connected(Server(answered(body, 403)), tmp_path, user={"token": SHORT}, patience=NO_PATIENCE) as api:
        with pytest.raises(ApiError) as raised:
            await api.get(NODES, "a")
        told = str(raised.value)
    assert is_harmless(told)
    assert [secret for secret in SECRETS if secret in told] == []


async def test_an_error_within_a_watch(tmp_path: Path) -> None:
    refusal = {"kind": "Status", "message": f"no longer {EVIL} for {SHORT}", "code": 403}
    async with connected(Server(stream(event("ERROR", refusal))), tmp_path, user={"token": SHORT}) as api:
        async with aclosing(api.watch(NODES, resource_version="5")) as watch:
            with pytest.raises(ApiError) as raised:
                await anext(watch)
        told = str(raised.value)
    assert is_harmless(told)
    assert SHORT not in told
    assert told.startswith("no longer ")


async def test_a_password_in_the_address_of_the_server_is_no_label_of_a_metric(tmp_path: Path) -> None:
    server = Server(answered({"metadata": {"name": "a"}}))
    async with server.serving():
        file = kubeconfig(tmp_path, server.url.replace("http://", "http://user:hunter2@"))
        async with connect(kubeconfig=file) as api:
            await api.get(NODES, "a")
            (host,) = {host for _, _, host in api.requests}
    assert "hunter2" not in host
    assert host.startswith("127.0.0.1:")


# -- a kubeconfig ------------------------------------------------------------------------------------------------------


def test_the_standard_error_of_a_plugin(dovetail: Program) -> None:
    script = dovetail.folder / "plugin.py"
    script.write_text(
        f"import sys\nsys.stderr.write({f'no login {EVIL} {JWT} password=hunter2 {KEY}'!r})\nsys.exit(1)\n"
    )
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(script)],
        "interactiveMode": "Never",
    }
    outcome = dovetail("explain", "--kubeconfig", kubeconfig(dovetail.folder, "http://127.0.0.1:1", exec=plugin))
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    check(outcome, told="no login")


@pytest.mark.parametrize(
    ("server", "proxy"),
    [
        ("http://127.0.0.1:1", "socks5://user:hunter2@proxy.example:1080"),
        ("http://127.0.0.1:1", "socks5://user:hunter2/@proxy.example:1080"),
        ("http://127.0.0.1:1", "http://user:hunter2@127.0.0.1:1"),
        ("http://127.0.0.1:1", "http://user:hunter2/x@127.0.0.1:1"),
        ("ftp://user:hunter2@host", None),
        ("http://user:hunter2@", None),
        ("http://user:hunter2@127.0.0.1:x", None),
        ("http://user:hunter2@127.0.0.1:1", None),
        ("http://user:hunter2/x@127.0.0.1:1", None),
        (f"ftp://{EVIL}", None),
    ],
)
def test_passwords_in_addresses(dovetail: Program, server: str, proxy: str | None) -> None:
    outcome = dovetail("explain", "--kubeconfig", kubeconfig(dovetail.folder, server, proxy=proxy))
    assert outcome.code in (2, 3)
    check(outcome, told="dovetail: ")


def test_names_in_a_kubeconfig(dovetail: Program) -> None:
    name = "\x1b[2J\u202e\u200b"
    contexts = [{"name": name, "context": {"cluster": name}}]
    file = dovetail.file(json.dumps({"contexts": contexts, "current-context": name}))
    check(dovetail("explain", "--kubeconfig", file), told="there is no cluster")


# -- logs and events ---------------------------------------------------------------------------------------------------


def logged(error: BaseException | None = None) -> logging.LogRecord:
    record = logging.LogRecord("dovetail", logging.ERROR, "f.py", 1, f"refused: %s {EVIL}", (f"Bearer {JWT}",), None)
    record.__dict__["Pod"] = f"{EVIL} https://user:hunter2@host"
    record.__dict__[f"key{EVIL}"] = {"nested": f"{EVIL} {KEY}"}
    if error is not None:
        record.exc_info = (type(error), error, None)
    return record


@pytest.mark.parametrize("error", [None, ValueError(f"{EVIL}\n{EVIL} {JWT}")])
@pytest.mark.parametrize("form", [TextLines(), JsonLines()])
def test_lines_of_the_log(form: logging.Formatter, error: BaseException | None) -> None:
    line = form.format(logged(error))
    assert is_harmless(line), repr(line)
    assert [secret for secret in SECRETS if secret in line] == []


def test_a_line_in_json_still_holds_the_text() -> None:
    assert json.loads(JsonLines().format(logged()))["message"].endswith(EVIL)


def test_a_text_line_is_one_line_unless_it_has_a_trace() -> None:
    record = logging.LogRecord("dovetail", logging.INFO, "f.py", 1, "one\n2026-01-01 ERROR forged", (), None)
    assert "\n" not in TextLines().format(record)


def test_notes_of_events() -> None:
    about = ObjectReference("v1", "Node", "n", "u")
    event = Event(regarding=about, reason="Failed", note=f"launch failed: {EVIL} Bearer {JWT} http://u:hunter2@h")
    note = event_body(event, at=datetime(2026, 1, 1, tzinfo=UTC), instance="i")["note"]
    assert is_harmless(note)
    assert note.startswith("launch failed: ")
    assert [secret for secret in SECRETS if secret in note] == []


# -- data on a terminal ------------------------------------------------------------------------------------------------


def evil_dump(folder: Path) -> str:
    """YAML cannot hold control characters but as escapes, and JSON neither."""
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "n",
                "annotations": {"karpenter.sh/do-not-disrupt": EVIL},
                "labels": {"a": EVIL, "b": "größer → ☃"},
            },
            "spec": {"nodeName": "n1"},
        }
        for name in (f"p{EVIL}", "plain")
    ]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"karpenter.sh/nodepool": EVIL}}}
    file = folder / "evil.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*pods, node]}))
    return str(file)


@pytest.mark.parametrize("output", ["json", "yaml", "table"])
@pytest.mark.parametrize("command", ["explain", "forecast", "lint", "top"])
def test_what_commands_print_of_objects(dovetail: Program, command: str, output: str) -> None:
    outcome = dovetail(command, "-f", evil_dump(dovetail.folder), "-o", output, "--at", "2026-03-06T16:20:00Z")
    assert is_harmless(outcome.out), repr(outcome.out)
    assert is_harmless(outcome.err), repr(outcome.err)
    if output != "table":
        data = json.loads(outcome.out) if output == "json" else yaml.safe_load(outcome.out)
        assert EVIL in json.dumps(data, ensure_ascii=False) or EVIL in texts(data)


def texts(data: Any) -> str:
    """All strings in the data, one after the other."""
    if isinstance(data, dict):
        return "".join(map(texts, data.values()))
    return "".join(map(texts, data)) if isinstance(data, list) else str(data)


@pytest.mark.parametrize("name", ["dump.json", "dump.yaml", None])
def test_what_is_recorded(dovetail: Program, name: str | None) -> None:
    target = dovetail.folder / (name or "")
    outcome = dovetail("record", "-f", evil_dump(dovetail.folder), *(["-o", str(target)] if name else []))
    written = target.read_text() if name else outcome.out
    assert is_harmless(written), repr(written)
    items = (yaml.safe_load(written) if name == "dump.yaml" else json.loads(written))["items"]
    assert items[0]["metadata"]["name"] == f"p{EVIL}"
    assert items[0]["metadata"]["labels"] == {"a": EVIL, "b": "größer → ☃"}


def test_json_on_a_terminal(tmp_path: Path) -> None:
    with terminal("-m", "dovetail", "explain", "-f", evil_dump(tmp_path), "-o", "json") as shown:
        assert shown.end() == 0
    text = shown.seen.replace("\r\n", "\n").partition("{")[2]  # before it, a sign of life is drawn and removed
    assert is_harmless(text), repr(text)
    assert EVIL in texts(json.loads("{" + text))


def test_what_is_printable_stays_as_it_is(dovetail: Program) -> None:
    outcome = dovetail("record", "-q", "-f", evil_dump(dovetail.folder))
    assert "größer → ☃" in outcome.out
