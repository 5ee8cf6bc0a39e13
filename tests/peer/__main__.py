"""Karpenter for the tests beside it: `python -m tests.peer build` builds it, once a machine."""

import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Final

from tests.cluster import lease
from tests.cluster.access import Cluster, eventually
from tests.cluster.build import BuildError
from tests.harness.beside import GUARD_URL
from tests.harness.ports import free_ports
from tests.peer.process import PeerProcess, binary, load_crds

LEADS: Final = "leader_election_master_status"
USAGE: Final = "usage: python -m tests.peer build"


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    try:
        match arguments:
            case ["build"]:
                print(binary())
            case ["serve", folder]:
                serve(Cluster(Path(folder)))
            case _:
                print(USAGE, file=sys.stderr)
                return 2
    except (BuildError, TimeoutError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def serve(plane: Cluster) -> None:
    """Starts a Karpenter and a guard that live as long as the control plane; returns when they are ready."""
    plane.install_crds(load_crds())
    watcher = lease.watch(plane.folder / "lease", for_ever=False)
    karpenter = PeerProcess(plane, leads=True, group=watcher.pid)
    start_guard(plane, watcher.pid)
    karpenter.wait_ready()


def start_guard(plane: Cluster, group: int) -> None:
    """Returns when it leads."""
    ports = free_ports(2)
    options = [f"--metrics-port={ports[0]}", f"--health-probe-port={ports[1]}", "--log-output-paths=stdout"]
    url = f"http://127.0.0.1:{ports[0]}/metrics"
    with plane.log_of("guard").open("ab") as output:
        subprocess.Popen(
            [Path(sys.executable).with_name("dovetail"), "guard", "--kubeconfig", plane.kubeconfig, *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            process_group=group,
        )

    def leads() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                lines = response.read().decode().splitlines()
        except OSError:
            return False
        return any(float(line.rpartition(" ")[2]) == 1 for line in lines if line.startswith(LEADS))

    eventually(leads, seconds=60, what=lambda: plane.log_of("guard").read_text()[-2000:])
    (plane.folder / GUARD_URL).write_text(url)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
