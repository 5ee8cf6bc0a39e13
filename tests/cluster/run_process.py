"""`dovetail run` or `dovetail guard` as a process of its own, on a real control plane."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.cluster.access import Cluster, eventually

START_SECONDS = 40
# Nothing of the surroundings may decide how it runs.
KEPT = ("PATH", "HOME", "LANG", "PYTHONPATH")


class Page(NamedTuple):
    """What was served."""

    status: int
    text: str


class RunProcess:
    """One replica. It is killed at the end of the `with` block, if it has not ended before."""

    def __init__(self, cluster: Cluster, *arguments: str, kubeconfig: Path | None = None, mode: str = "run") -> None:
        self.lines: list[dict[str, Any]] = []
        self.said: list[str] = []
        where = ["--kubeconfig", str(kubeconfig or cluster.kubeconfig), "--metrics-port=0", "--health-probe-port=0"]
        self.process = subprocess.Popen(
            [Path(sys.executable).with_name("dovetail"), mode, *where, *arguments],
            env={key: os.environ[key] for key in KEPT if key in os.environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.ended()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.said.append(line)

    def ended(self, *, seconds: float = 40) -> int:
        """Its exit code, once it has ended."""
        code = self.process.wait(seconds)
        self._reader.join(seconds)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def messages(self) -> list[str]:
        return [line["message"] for line in self.lines]

    def wait_for(self, is_so: Callable[[], bool], *, seconds: float = START_SECONDS) -> None:
        """Raises TimeoutError, with what it said last."""

        def checked() -> bool:
            assert self.process.poll() is None, [self.process.returncode, *self.said, *self.lines[-5:]]
            return is_so()

        eventually(checked, seconds=seconds, what=lambda: f"it said: {[*self.said, *self.lines[-20:]]}")

    def wait_ready(self) -> None:
        self.wait_for(lambda: self.serves("probes") and self.get("/readyz").status == 200)

    def wait_leading(self) -> None:
        self.wait_for(lambda: self.serves("metrics") and self.metric("leader_election_master_status") == 1)

    def serves(self, what: str) -> bool:
        return any(line["message"] == "serving" and line["what"] == what for line in self.lines)

    def get(self, path: str) -> Page:
        what = "metrics" if path.startswith(("/metrics", "/debug")) else "probes"
        port = next(line["port"] for line in self.lines if line["message"] == "serving" and line["what"] == what)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
                return Page(response.status, response.read().decode())
        except urllib.error.HTTPError as refused:
            with refused:
                return Page(refused.code, refused.read().decode())

    def metric(self, start: str) -> float | None:
        """The value of the first series whose line begins so."""
        found = (line for line in self.get("/metrics").text.splitlines() if line.startswith(start))
        return next((float(line.rpartition(" ")[2]) for line in found), None)
