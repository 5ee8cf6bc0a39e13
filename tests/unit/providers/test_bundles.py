"""How the program finds providers: entry points of packages, with the example of the documentation as one."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.cli.common.providers import PROVIDERS
from dovetail.providers.bundle import UnknownProvider, installed

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples/provider"


class Site:
    """A folder with packages, as pip fills one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, module: str, text: str, *names: str) -> None:
        """A package with one module, and the entry points for its BUNDLE."""
        (self.folder / f"{module}.py").write_text(text)
        metadata = self.folder / f"dovetail_{module}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: dovetail-{module}\nVersion: 1.0\n")
        lines = [f"{name} = {module}:BUNDLE" for name in names or (module,)]
        (metadata / "entry_points.txt").write_text("\n".join(["[dovetail.providers]", *lines, ""]))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.syspath_prepend(tmp_path)
    PROVIDERS.cache_clear()
    yield Site(tmp_path)
    PROVIDERS.cache_clear()
    for module in ("acme", "broken", "half", "other"):
        sys.modules.pop(module, None)


def acme() -> str:
    return (EXAMPLE / "acme.py").read_text()


def test_kwok_is_there_without_any_package() -> None:
    bundles = installed()
    assert "kwok" in bundles.usable
    assert bundles.named("kwok").node_classes.kind == "KWOKNodeClass"
    with pytest.raises(UnknownProvider, match=r"there is no provider 'gcp'; installed: .*kwok"):
        bundles.named("gcp")


def test_a_package_adds_a_provider_with_its_options_crds_and_rights(site: Site) -> None:
    site.install("acme", acme())
    printed = _dovetail(site, "manifests", "--provider", "acme")
    assert "acmenodeclasses.acme.example" in printed.stdout
    assert "kwoknodeclasses" not in printed.stdout
    help_ = _dovetail(site, "run", "--help").stdout
    assert "--acme-region" in help_
    assert "[kwok|acme]" in help_


def test_a_broken_package_is_named_and_hides_nothing(site: Site) -> None:
    site.install("acme", acme())
    site.install("broken", "import a_module_that_nobody_has")
    site.install("half", "class BUNDLE:\n    name = 'half'")
    site.install("other", acme().replace('name = "acme"', 'name = "other"'), "other")
    bundles = installed()
    assert set(bundles.usable) == {"kwok", "acme"}
    assert "No module named 'a_module_that_nobody_has'" in bundles.broken["broken"]
    assert "it lacks node_classes" in bundles.broken["half"]
    assert "its option --acme-region is already one of provider acme" in bundles.broken["other"]
    with pytest.raises(UnknownProvider, match="provider broken cannot be used: broken:BUNDLE"):
        bundles.named("broken")
    help_ = " ".join(_dovetail(site, "run", "--help").stdout.split())
    assert "Cannot be used: broken (broken:BUNDLE: ModuleNotFoundError" in help_
    refused = _dovetail(site, "run", "--provider", "broken")
    assert refused.returncode == 2
    assert "provider broken cannot be used" in refused.stderr


def test_the_example_passes_the_suite_as_its_author_runs_it(tmp_path: Path) -> None:
    for file in EXAMPLE.glob("*.py"):
        shutil.copy(file, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_acme.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "12 passed" in done.stdout


def _dovetail(site: Site, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": f"{site.folder}", "PATH": "", "COLUMNS": "120"}
    command = [sys.executable, "-m", "dovetail", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
