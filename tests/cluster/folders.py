"""Where does the control plane of a run live, and who clears up after a run that was killed? The next one.

A run that is alive holds the lease in its folder. A lease that nobody holds is that of a killed run. A folder without a
lease is kept for its logs.
"""

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.cluster import lease
from tests.cluster.access import eventually

PREFIX: Final = "dovetail-cluster-"
KILLED_SECONDS: Final = 60  # one that is just being made has a lease that nobody holds yet
LOGS_SECONDS: Final = 24 * 60 * 60


def new() -> Path:
    """An empty folder for a run, after those of dead runs have been removed."""
    sweep(Path(tempfile.gettempdir()), now=time.time())
    return Path(tempfile.mkdtemp(prefix=PREFIX))


def sweep(root: Path, *, now: float) -> None:
    """Remove our folders of runs that were killed, and logs that nobody has come for in a day."""
    for folder in root.glob(f"{PREFIX}*"):
        try:
            found = folder.stat()
        except FileNotFoundError:
            continue  # another run sweeps too
        if found.st_uid != os.getuid() or lease.watched(folder / "lease"):
            continue
        quiet_seconds = KILLED_SECONDS if (folder / "lease").exists() else LOGS_SECONDS
        if now - found.st_mtime > quiet_seconds:
            shutil.rmtree(folder, ignore_errors=True)


def keep_logs(folder: Path) -> None:
    """Leave what people may want to read after a failure."""
    shutil.rmtree(folder / "etcd", ignore_errors=True)
    (folder / "lease").unlink()


def remove(folder: Path) -> None:
    """Remove it as a whole: components that are about to die may still write into it."""

    def is_gone() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    eventually(is_gone, seconds=10, what=lambda: f"{folder} cannot be removed")
