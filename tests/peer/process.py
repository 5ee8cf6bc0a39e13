"""Karpenter with its kwok provider as a program: built once from its Go module, started beside a real control plane.

It is only ever run. `karpenter/go.mod` says which version.
"""

import hashlib
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml

from tests.cluster.access import Cluster, eventually
from tests.cluster.build import BuildError, cache, go_command, locked
from tests.harness.ports import free_ports

NAME: Final = "karpenter"
_SOURCE: Final = Path(__file__).with_name("karpenter")
_MODULE: Final = "sigs.k8s.io/karpenter"
_START_SECONDS: Final = 60
_STOP_SECONDS: Final = 20
_KEPT: Final = ("PATH", "HOME", "LANG")


class PeerProcess:
    """One replica. It is ended at the end of the `with` block. Its log is in the cluster's folder.

    `leads`: it waits for the Lease before it acts, as in a real cluster. `group`: the process group that it joins.
    """

    def __init__(self, cluster: Cluster, *, leads: bool = False, group: int | None = None) -> None:
        metrics, self._health = free_ports(2)
        self._log = cluster.log_of(NAME)
        settings = {
            "KUBECONFIG": str(cluster.kubeconfig),
            "DISABLE_LEADER_ELECTION": str(not leads).lower(),
            "LEADER_ELECTION_NAMESPACE": "kube-system",
            "SYSTEM_NAMESPACE": "kube-system",
            "KUBERNETES_MIN_VERSION": "1.19.0-0",
            "METRICS_PORT": str(metrics),
            "HEALTH_PROBE_PORT": str(self._health),
        }
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [binary()],
                env={key: os.environ[key] for key in _KEPT if key in os.environ} | settings,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=group,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait(_STOP_SECONDS)

    def wait_ready(self) -> None:
        """Raises TimeoutError, with its last words."""
        eventually(self._is_ready, seconds=_START_SECONDS, what=lambda: "\n".join(self.said[-15:]))

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.said[-15:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._health}/readyz", timeout=2) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    @property
    def said(self) -> list[str]:
        """The lines of its log."""
        return self._log.read_text(errors="replace").splitlines()


def binary() -> Path:
    """The program, built first if need be; raises BuildError."""
    digest = hashlib.sha256((_SOURCE / "go.mod").read_bytes() + (_SOURCE / "go.sum").read_bytes())
    path = cache() / f"{NAME}-{digest.hexdigest()[:16]}"
    cache().mkdir(parents=True, exist_ok=True)
    with locked(cache() / f"{NAME}.lock"):
        if not path.exists():
            print("building Karpenter, once: 3 to 10 minutes", file=sys.stderr, flush=True)
            new = path.with_suffix(".new")
            _go("build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", str(new), f"{_MODULE}/kwok")
            new.replace(path)
    return path


def load_crds() -> list[dict[str, Any]]:
    """Its CustomResourceDefinitions, from the module."""
    module = Path(_go("list", "-m", "-f", "{{.Dir}}", _MODULE).strip())
    files = [*sorted(module.glob("pkg/apis/crds/*.yaml")), *sorted(module.glob("kwok/apis/crds/*.yaml"))]
    return [yaml.load(file.read_text(), Loader=yaml.CSafeLoader) for file in files]


def _go(*arguments: str) -> str:
    environment = os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "auto", "GOWORK": "off"}
    done = subprocess.run(
        [go_command(), *arguments], cwd=_SOURCE, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BuildError(f"`go {arguments[0]}` failed in {_SOURCE}; it downloads modules unless cached:\n{done.stderr}")
    return done.stdout
