"""A real kube-scheduler that says, of each pod, which nodes its own filters leave.

It says so by the documented way to extend it: after its filters it asks an extender, here a little server of the test,
which of the nodes that are left it may take.
"""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from tests.cluster.plane import ControlPlane

# Nobody is there to make service accounts, or to take away the taint of a node that is not ready yet.
GATES: Final = "--feature-gates=TaintTolerationComparisonOperators=true"
FLAGS: Final = {
    "kube-apiserver": (GATES, "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"),
    "kube-scheduler": (GATES,),
}

ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"
RACK: Final = "example.com/rack"


def _profile(name: str, *constraints: tuple[str, int, dict[str, Any]]) -> dict[str, Any]:
    """A profile with default spread constraints."""
    written = [
        {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", **more}
        for key, skew, more in constraints
    ]
    args = {"defaultingType": "List", "defaultConstraints": written}
    return {"schedulerName": name, "pluginConfig": [{"name": "PodTopologySpread", "args": args}]}


PROFILES: Final = [
    {"schedulerName": "default-scheduler"},
    _profile("zones", (ZONE, 1, {})),
    _profile(
        "racks", (RACK, 2, {"nodeTaintsPolicy": "Honor"}), (ZONE, 2, {"minDomains": 3, "matchLabelKeys": ["rev"]})
    ),
    _profile("hosts", (HOST, 1, {}), (ZONE, 1, {"whenUnsatisfiable": "ScheduleAnyway"})),
    _profile("packing"),
]

# Of a pod (namespace/name) and the nodes that are left, those that the scheduler may choose from.
Choose = Callable[[str, frozenset[str]], frozenset[str]]


class Verdict(NamedTuple):
    """The nodes that the scheduler's filters left to a pod (by UID)."""

    pod: str
    nodes: frozenset[str]


def any_of_them(_: str, nodes: frozenset[str]) -> frozenset[str]:
    return nodes


class Extender:
    """Listens to what the scheduler finds, in the order in which it schedules; pods without a node are not told."""

    def __init__(self) -> None:
        self.verdicts: list[Verdict] = []
        self.choose: Choose = any_of_them
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def config(self) -> dict[str, Any]:
        """How the scheduler is told of it."""
        url = f"http://127.0.0.1:{self._server.server_port}"
        return {"urlPrefix": url, "filterVerb": "filter", "nodeCacheCapable": True}

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        fields = {key.lower(): value for key, value in question.items()}
        meta, nodes = fields["pod"]["metadata"], frozenset(fields["nodenames"])
        self.verdicts.append(Verdict(meta["uid"], nodes))
        return {"NodeNames": sorted(self.choose(f"{meta['namespace']}/{meta['name']}", nodes))}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        extender = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                content = json.dumps(extender.answer(question)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


class SchedulingPlane(ControlPlane):
    """A control plane in which nobody but the scheduler and the test does anything."""

    def __init__(self, folder: Path, extender: Extender) -> None:
        super().__init__(folder, flags=FLAGS)
        self.extender = extender

    def start_all(self) -> None:
        super().start_all()
        self.kill("kube-controller-manager")
        self.kill("kwok")

    def _scheduler_config(self) -> dict[str, Any]:
        return {**super()._scheduler_config(), "extenders": [self.extender.config], "profiles": PROFILES}

    @property
    def scheduler_config(self) -> str:
        """The file that the scheduler reads."""
        return str(self.folder / "scheduler.json")
