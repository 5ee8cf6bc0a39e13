"""How long does a control plane live? As long as somebody holds its lease (see watch.py)."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

WATCH: Final = Path(__file__).with_name("watch.py")


def make(folder: Path) -> Path:
    """Makes the lease of the control plane in this folder."""
    lease = folder / "lease"
    os.mkfifo(lease, 0o600)
    return lease


def hold(lease: Path) -> int:
    """Keeps the control plane alive until the descriptor is closed or we die; reading too, as else this would wait."""
    return os.open(lease, os.O_RDWR)


def end(lease: Path) -> bool:
    """Ends the control plane, whoever holds the lease; False if there is none."""
    try:
        descriptor = os.open(lease, os.O_WRONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno == errno.ENXIO:  # nobody watches
            return False
        raise
    try:
        os.write(descriptor, b"x")
    finally:
        os.close(descriptor)
    return True


def watched(lease: Path) -> bool:
    """Whether the control plane still runs. Only for those who do not hold the lease."""
    try:
        os.close(os.open(lease, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def watch(lease: Path, *, for_ever: bool) -> subprocess.Popen[bytes]:
    """Starts the watcher in a process group of its own, which the components then join."""
    # For ever: the watcher holds the lease itself, so that only a byte ends it.
    descriptor = os.open(lease, os.O_RDWR if for_ever else os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.set_blocking(descriptor, True)
        return subprocess.Popen(
            [sys.executable, "-I", "-S", WATCH],
            stdin=descriptor,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
    finally:
        os.close(descriptor)
