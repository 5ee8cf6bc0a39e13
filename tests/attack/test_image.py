"""Is there anything in the image that installs packages, and is the base of a release pinned?

No image is built here: that needs an engine and its base. What the Containerfile says is checked, and its check is run.
"""

import re
import subprocess
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "Containerfile").read_text()
DIGEST = "sha256:" + "0123456789abcdef" * 4


def stages() -> dict[str, list[str]]:
    """The instructions of each stage, by its name; the last one has none."""
    found: dict[str, list[str]] = {}
    lines = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", TEXT, flags=re.MULTILINE)).splitlines()
    for line in filter(None, lines):
        if line.startswith("FROM "):
            name = line.partition(" AS ")[2]
            found[name] = [line]
        elif found:
            found[name].append(line)
    return found


def test_the_image_is_one_layer_of_a_file_system_without_installers() -> None:
    assert list(stages()) == ["build", "runtime", ""]
    image, runtime = stages()[""], stages()["runtime"]
    assert image[:2] == ["FROM scratch", "COPY --from=runtime / /"]
    assert not any(line.startswith(("RUN ", "ADD ")) for line in image)
    (removed,) = (line for line in runtime if line.startswith("RUN "))
    assert set(removed.partition(" && ")[0].split()) >= {"uninstall", "pip", "setuptools", "wheel"}
    assert "ensurepip" in removed  # it holds a copy of pip


def test_the_program_is_installed_without_installers() -> None:
    build = stages()["build"]
    assert "RUN python -m venv --without-pip /opt/dovetail" in build
    assert any("uninstall --yes flit-core" in line for line in build)
    assert any("--require-hashes" in line for line in build)


def test_the_image_runs_as_nobody_and_finds_the_program() -> None:
    image = stages()[""]
    assert "USER 65532:65532" in image
    (environment,) = (line for line in image if line.startswith("ENV "))
    assert "PATH=/opt/dovetail/bin:/usr/local/bin:" in environment


@pytest.mark.parametrize(
    ("release", "base", "good"),
    [
        ("false", "python:3.11-slim", True),
        ("false", f"python:3.11-slim@{DIGEST}", True),
        ("true", f"python:3.11-slim@{DIGEST}", True),
        ("true", f"registry.example:5000/python@{DIGEST}", True),
        ("true", "python:3.11-slim", False),
        ("true", f"python:3.11-slim@{DIGEST[:-1]}", False),
        ("true", f"python:3.11-slim@{DIGEST}0", False),
        ("yes", f"python:3.11-slim@{DIGEST}", False),
        ("", "python:3.11-slim", False),
    ],
)
def test_a_release_needs_a_base_with_a_digest(release: str, base: str, *, good: bool) -> None:
    (check,) = (line.removeprefix("RUN ") for line in stages()["build"] if line.startswith("RUN case "))
    ended = subprocess.run(
        ["/bin/sh", "-c", check], env={"RELEASE": release, "BASE": base}, capture_output=True, text=True, check=False
    )
    assert (ended.returncode == 0) is good
    assert ("needs a base with a digest" in ended.stderr) is not good
