"""A real control plane for tests: etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok."""

import csv
import http.client
import json
import os
import secrets
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from types import TracebackType
from typing import Any, Final, Self

from tests.cluster import lease
from tests.cluster.access import ADMIN, POLL_SECONDS, Cluster, kubeconfig_text
from tests.cluster.build import binary
from tests.harness.ports import free_ports

KWOK_CONFIG: Final = Path(__file__).with_name("kwok.yaml")
START_SECONDS: Final = 60  # far more than it takes; a busy machine is no failure
TERMINATE_SECONDS: Final = 20
ATTEMPTS: Final = 3

# Users and their groups. All but the first may do nothing until a test binds them to a role.
USERS: Final[Mapping[str, Sequence[str]]] = {ADMIN: ("system:masters",), "dovetail": (), "somebody": ()}


# For a controller manager that does not take a node for unready while the API server is away or the machine is busy: a
# kwok node that is unready and being deleted goes without a drain (03 §3.3), and its pods are collected as orphans.
PATIENT: Final = {"kube-controller-manager": ("--node-monitor-grace-period=10m",)}


class StartError(Exception):
    """A component did not come up; the message ends with its last words."""


class ControlPlane(Cluster):
    """One control plane of its own, in a folder that holds its certificates, tokens, kubeconfigs and logs.

    It lives as long as this process unless it is stopped before, or as long as `held_by` says: the lease of somebody
    else. `flags` adds flags to components by name; `audit` is the level at which audit.log records requests.
    """

    def __init__(
        self,
        folder: Path,
        *,
        users: Mapping[str, Sequence[str]] | None = None,
        flags: Mapping[str, Sequence[str]] | None = None,
        audit: str | None = None,
        held_by: Path | None = None,
        for_ever: bool = False,
    ) -> None:
        super().__init__(folder)
        self._users = {**USERS, **(users or {})}
        self._extra = flags or {}
        self._audit = audit
        self._lease = held_by
        self._holds_lease = held_by is None and not for_ever
        self._for_ever = for_ever
        self._held: int | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ports: dict[str, int] = {}
        self._binary = Path()

    def __enter__(self) -> Self:
        self.start_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- all of it -----------------------------------------------------------------------------------------------------

    def start_all(self) -> None:
        """Starts everything and returns when it is ready; raises StartError or BuildError."""
        self._binary = binary()
        self.folder.mkdir(parents=True, exist_ok=True)
        for attempt in range(ATTEMPTS):
            try:
                self._start_once()
            except StartError as error:
                self.stop()
                if attempt + 1 == ATTEMPTS or "address already in use" not in str(error):
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                return

    def _start_once(self) -> None:
        self._write_files()
        if self._lease is None:
            self._lease = lease.make(self.folder)
        if self._holds_lease:
            self._held = lease.hold(self._lease)
        self._watcher = lease.watch(self._lease, for_ever=self._for_ever)
        for together in (("etcd", "kube-apiserver"), ("kube-controller-manager", "kube-scheduler", "kwok")):
            for name in together:
                self._spawn(name)
            for name in together:
                self.wait_ready(name)
        (self.folder / "url").write_text(self._url)  # the last of the files: who sees it may use all

    def stop(self) -> None:
        """Kills everything; the logs stay."""
        processes = [*self._running.values(), *([self._watcher] if self._watcher else [])]
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
        self._running.clear()
        self._watcher = None
        if self._held is not None:
            os.close(self._held)
            self._held = None
        rmtree(self.folder / "etcd", ignore_errors=True)

    # -- one component -------------------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Starts the component again after `kill`, and returns when it is ready; raises StartError."""
        self._spawn(name)
        self.wait_ready(name)

    def kill(self, name: str) -> None:
        """Ends the component without warning."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def terminate(self, name: str) -> None:
        """Asks the component to end, and waits until it has; one that will not is killed."""
        self._running[name].terminate()
        with suppress(subprocess.TimeoutExpired):
            self._running[name].wait(TERMINATE_SECONDS)
        self.kill(name)

    def restart(self, name: str) -> None:
        """Kills the component, starts it on the same port, and returns when it is ready; raises StartError."""
        self.kill(name)
        self.start(name)

    def pause(self, name: str) -> None:
        """Stops the component from running; its connections stay open and are silent."""
        process = self._running[name]
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)  # all of its threads, which takes a moment

    def resume(self, name: str) -> None:
        """Lets a paused component go on."""
        self._running[name].send_signal(signal.SIGCONT)

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def wait_ready(self, name: str) -> None:
        """Returns when the component says that it is well; raises StartError."""
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready(name):
            if (code := self._running[name].poll()) is not None:
                raise StartError(f"{name} ended with {code}:\n{self._last_words(name)}")
            if time.monotonic() > deadline:
                raise StartError(f"{name} was not ready within {START_SECONDS} s:\n{self._last_words(name)}")
            time.sleep(POLL_SECONDS)

    def _is_ready(self, name: str) -> bool:
        scheme = "http" if name in ("etcd", "kwok") else "https"
        path = {"etcd": "health", "kube-apiserver": "readyz"}.get(name, "healthz")
        try:
            with urllib.request.urlopen(
                f"{scheme}://127.0.0.1:{self._ports[name]}/{path}",
                timeout=5,
                context=self._tls if scheme == "https" else None,
            ) as response:
                return bool(response.status == 200)
        except (OSError, http.client.HTTPException):
            return False

    def _last_words(self, name: str) -> str:
        return "\n".join(self.log_of(name).read_text(errors="replace").splitlines()[-15:])

    def _spawn(self, name: str) -> None:
        assert self._watcher is not None, "the control plane has not been started"
        assert name not in self._running, f"{name} runs already"
        with self.log_of(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                [self._binary, name, *self._flags[name](), *self._extra.get(name, ())],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=self._watcher.pid,
            )

    # -- files and flags -----------------------------------------------------------------------------------------------

    def _write_files(self) -> None:
        subprocess.run([self._binary, "certs", self.folder], check=True, cwd=self.folder)
        names = ("etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        # The components are named in the audit log, so they are users of their own.
        users = {**self._users, **dict.fromkeys(names[3:], ("system:masters",))}
        with (self.folder / "tokens.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            for user, groups in users.items():
                token = secrets.token_hex(16)
                rows.writerow([token, user, user, ",".join(groups)])
                self.kubeconfig_of(user).write_text(kubeconfig_text(self._url, self.ca_file, token))
        self.__dict__.pop("_tokens", None)
        self.__dict__.pop("_tls", None)
        policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": self._audit or "None"}]}
        self._write_json("audit-policy.json", policy)
        self._write_json("scheduler.json", self._scheduler_config())

    @property
    def _url(self) -> str:
        return f"https://127.0.0.1:{self._ports['kube-apiserver']}"

    def _write_json(self, name: str, content: Any) -> None:
        (self.folder / name).write_text(json.dumps(content))

    def _scheduler_config(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(self.kubeconfig_of("kube-scheduler")), "qps": 500, "burst": 1000},
            # A pod that did not fit is tried again soon.
            "podInitialBackoffSeconds": 1,
            "podMaxBackoffSeconds": 2,
        }

    @property
    def _flags(self) -> dict[str, Callable[[], list[str]]]:
        return {
            "etcd": self._etcd_flags,
            "kube-apiserver": self._apiserver_flags,
            "kube-controller-manager": self._controller_manager_flags,
            "kube-scheduler": self._scheduler_flags,
            "kwok": self._kwok_flags,
        }

    def _etcd_flags(self) -> list[str]:
        client = f"http://127.0.0.1:{self._ports['etcd']}"
        peer = f"http://127.0.0.1:{self._ports['etcd-peer']}"
        return [
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _apiserver_flags(self) -> list[str]:
        audit = [
            f"--audit-policy-file={self.folder / 'audit-policy.json'}",
            f"--audit-log-path={self.folder / 'audit.log'}",
        ]
        return [
            *self._serving_flags("kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{self._ports['etcd']}",
            "--authorization-mode=RBAC",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--service-account-issuer=https://dovetail.test",
            f"--service-account-key-file={self.folder / 'sa.key'}",
            f"--service-account-signing-key-file={self.folder / 'sa.key'}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",
            "--allow-privileged=true",
            "--shutdown-watch-termination-grace-period=1s",  # else it waits a minute for its watchers when terminated
            *(audit if self._audit else ()),
        ]

    def _controller_manager_flags(self) -> list[str]:
        return [
            *self._serving_flags("kube-controller-manager"),
            f"--kubeconfig={self.kubeconfig_of('kube-controller-manager')}",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--leader-elect=false",
            f"--service-account-private-key-file={self.folder / 'sa.key'}",
            f"--root-ca-file={self.ca_file}",
            "--node-monitor-period=1s",  # taints follow a node's conditions at once
        ]

    def _scheduler_flags(self) -> list[str]:
        return [*self._serving_flags("kube-scheduler"), f"--config={self.folder / 'scheduler.json'}"]

    def _serving_flags(self, name: str) -> list[str]:
        return [
            "--bind-address=127.0.0.1",
            f"--secure-port={self._ports[name]}",
            f"--tls-cert-file={self.folder / 'server.crt'}",
            f"--tls-private-key-file={self.folder / 'server.key'}",
            "--profiling=false",
        ]

    def _kwok_flags(self) -> list[str]:
        return [
            f"--config={KWOK_CONFIG}",
            f"--kubeconfig={self.kubeconfig_of('kwok')}",
            f"--server-address=127.0.0.1:{self._ports['kwok']}",
        ]
