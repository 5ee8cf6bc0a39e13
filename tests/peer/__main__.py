"""Karpenter for the tests beside it: `python -m tests.peer build` builds it, once a machine."""

import sys
from pathlib import Path
from typing import Final

from tests.cluster import lease
from tests.cluster.access import Cluster
from tests.cluster.build import BuildError
from tests.peer.process import PeerProcess, binary, load_crds

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
    """Starts a Karpenter that lives as long as the control plane; returns when it is ready."""
    plane.install_crds(load_crds())
    watcher = lease.watch(plane.folder / "lease", for_ever=False)
    PeerProcess(plane, leads=True, group=watcher.pid).wait_ready()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
