"""How long do 1,000 pods take from nothing to Running on a real control plane, on how many nodes, and at what cost?

`python -m bench.provisioning` prints the tables. Each run has a control plane and a process of its own.
"""

import asyncio
import subprocess
import sys
from pathlib import Path

from tests.cluster import folders
from tests.cluster.access import Cluster
from tests.cluster.build import is_built
from tests.cluster.plane import PATIENT, ControlPlane
from tests.cluster.provisioning import workloads
from tests.cluster.provisioning.scale_out import (
    PEER_BASIC,
    PEER_WIDE,
    UPSTREAM_BASIC,
    UPSTREAM_WIDE,
    scaled_out,
    table,
)

_SHAPES = {
    "basic": ("500 small and 500 large pods", workloads.basic, PEER_BASIC, UPSTREAM_BASIC),
    "wide": ("1,000 pods of 30 deployments", workloads.wide, PEER_WIDE, UPSTREAM_WIDE),
}


def measure(shape: str, folder: Path) -> None:
    title, made, peer, upstream = _SHAPES[shape]
    outcome = asyncio.run(scaled_out(Cluster(folder), made(), workloads.pool(), 1_000))
    print(table(title, outcome, peer=peer, upstream=upstream), flush=True)


def print_provisioning(*shapes: str) -> None:
    """All of them if none is named."""
    if not is_built():
        print("provisioning: skipped, the control plane is not built; `make test` does that first\n")
        return
    for shape in shapes or _SHAPES:
        folder = folders.new()
        try:
            with ControlPlane(folder, flags=PATIENT) as plane:
                plane.install_crds()
                subprocess.run([sys.executable, "-m", "bench.provisioning", "on", shape, str(folder)], check=True)
        finally:
            folders.remove(folder)
    print()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["on", shape, folder]:
            measure(shape, Path(folder))
        case shapes:
            print_provisioning(*shapes)
