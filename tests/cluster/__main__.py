"""A control plane for people: `python -m tests.cluster up` and `down`; `build` only builds it."""

import shutil
import sys
from pathlib import Path

from tests.cluster import lease
from tests.cluster.access import Cluster, eventually
from tests.cluster.build import BuildError, binary, cache, locked
from tests.cluster.plane import ControlPlane, StartError

USAGE = "usage: python -m tests.cluster up|down|build"


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    try:
        match arguments:
            case ["up"]:
                up(cache() / "up")
            case ["down"]:
                down(cache() / "up")
            case ["build"]:
                print(binary())
            case ["serve", folder]:
                serve(Path(folder))
            case _:
                print(USAGE, file=sys.stderr)
                return 2
    except (BuildError, StartError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def up(folder: Path) -> None:
    """Starts a control plane that stays, unless it runs already, and says how to use it."""
    cache().mkdir(parents=True, exist_ok=True)
    with locked(cache() / "up.lock"):
        if not lease.watched(folder / "lease"):
            shutil.rmtree(folder, ignore_errors=True)
            plane = ControlPlane(folder, for_ever=True)
            plane.start_all()
            plane.install_crds()
    cluster = Cluster(folder)
    print(f"{cluster.url} runs with the CRDs of Dovetail; logs are in {folder}")
    print(f"export KUBECONFIG={cluster.kubeconfig}")


def down(folder: Path) -> None:
    """Ends that control plane and everything in it."""
    cache().mkdir(parents=True, exist_ok=True)
    with locked(cache() / "up.lock"):
        if lease.end(folder / "lease"):
            eventually(lambda: not lease.watched(folder / "lease"), seconds=20, what=lambda: "it still runs")
            print("stopped")
        else:
            print("nothing runs")
        shutil.rmtree(folder, ignore_errors=True)


def serve(folder: Path) -> None:
    """Starts a control plane that lives as long as somebody holds the lease in the folder; returns when it is ready."""
    ControlPlane(folder, held_by=folder / "lease").start_all()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
