"""Searches directories for manifests, and counts what is none.

A file that is named on the command line has to be readable. In a directory, files that are no manifests are normal:
values and templates of Helm charts, patches of kustomize, settings of other tools.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.api.documents import Document, InputError, read_documents, whole_json
from dovetail.api.manifest_scan import ScannedDocument, scan, without
from dovetail.api.yaml_events import YamlError, parse
from dovetail.cli.common.files import is_manifest, label_of, read_file
from dovetail.model.finding import Finding, Severity
from dovetail.model.refs import Ref

_KUSTOMIZATIONS: Final = frozenset({"kustomization.yaml", "kustomization.yml", "Kustomization"})
_CHART: Final = frozenset({"Chart.yaml", "Chart.yml"})
_SKIPPED_FOLDERS: Final = frozenset({"node_modules"})
_TEMPLATE_MARKS: Final = (b"{{", b"{%")
_RENDER: Final = "render it first: helm template … | dovetail lint -"


class SkipReason(StrEnum):
    """Why a file was not checked."""

    TEMPLATE = "template"
    PATCH = "kustomize patch"
    KUSTOMIZATION = "kustomization"
    CHART = "Helm chart or values"
    OTHER = "no apiVersion and kind"
    MALFORMED = "not valid YAML or JSON"
    UNREADABLE = "not readable"

    def counted(self, number: int) -> str:
        """`2 templates`."""
        return f"{number} {self.value if number == 1 else _MANY.get(self, self.value)}"


_MANY: Final = {
    SkipReason.TEMPLATE: "templates",
    SkipReason.PATCH: "kustomize patches",
    SkipReason.KUSTOMIZATION: "kustomizations",
    SkipReason.CHART: "Helm charts and values",
}


class SkippedFile(msgspec.Struct, frozen=True):
    """A file that was not checked."""

    file: str
    reason: SkipReason
    detail: str = ""


class _Builds(NamedTuple):
    """What the kustomizations and charts of a directory build from, as absolute paths."""

    roots: dict[str, str]
    """The folder of the kustomization by its resource."""
    patches: set[str]
    charts: set[str]
    """Folders of charts."""


class ManifestTree(Iterable[Document]):
    """The documents of files and directories, and counts of what was found.

    `is_read` says which kinds the reader needs: the others are counted and not parsed.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        exclude: Sequence[str] = (),
        is_read: Callable[[str, str], bool] | None = None,
        tick: Callable[[int, int], None] = lambda _done, _all: None,
    ) -> None:
        self._paths = paths
        self._exclude = exclude
        self._is_read = is_read
        self._tick = tick
        self._units: dict[str, str] = {}
        self.searched = any(path != "-" and Path(path).is_dir() for path in paths)
        self.files = 0
        self.excluded = 0
        self.skipped: list[SkippedFile] = []
        self.unread: Counter[str] = Counter()
        """Kinds that were not parsed."""
        self.problems: list[Finding] = []
        """Manifests that cannot be read."""

    def unit_of(self, file: str) -> str:
        """What is applied together with this file: the files of a kustomization, or all files named by the user."""
        return self._units.get(file, "")

    def __iter__(self) -> Iterator[Document]:
        """Raises InputError for a path that is no directory and cannot be read, and for an empty directory."""
        listings = [(path, self._files(path)) for path in self._paths]
        total, done = sum(len(files) if files is not None else 1 for _, files in listings), 0
        for path, files in listings:
            if files is None:
                yield from _named(path)
                self.files += 1
            else:
                builds = _builds(files)
                for file in files:
                    yield from self._searched(file, builds)
                    done += 1
                    self._tick(done, total)

    # -- walking ------------------------------------------------------------------------------------------------------

    def _files(self, path: str) -> list[str] | None:
        """The files below a directory; None if it is none."""
        if path == "-" or not path or not Path(path).is_dir():
            return None
        paths: list[str] = []
        seen: set[str] = set()  # links may form a cycle
        for folder, folders, files in os.walk(path, onerror=self._no_folder, followlinks=True):
            real = os.path.realpath(folder)
            if real in seen:
                folders.clear()
                continue
            seen.add(real)
            inside = os.path.relpath(folder, path)
            folders[:] = sorted(name for name in folders if not self._is_left_out(inside, name, folder=True))
            names = sorted(name for name in files if is_manifest(name) or name in _KUSTOMIZATIONS)
            paths += [str(Path(folder, name)) for name in names if not self._is_left_out(inside, name)]
        if not paths and not self.skipped:
            what = "file that is not excluded" if self.excluded else "file"
            raise InputError(label_of(path), f"the directory has no .yaml, .yml or .json {what}")
        return paths

    def _no_folder(self, error: OSError) -> None:
        self._skip(str(error.filename), SkipReason.UNREADABLE, error.strerror or str(error))

    def _is_left_out(self, inside: str, name: str, *, folder: bool = False) -> bool:
        if folder and (name.startswith(".") or name in _SKIPPED_FOLDERS):
            return True
        path = str(Path(inside, name))
        excluded = any(
            fnmatch(path if "/" in pattern.strip("/") else name, pattern.strip("/")) for pattern in self._exclude
        )
        self.excluded += excluded
        return excluded

    # -- one file -----------------------------------------------------------------------------------------------------

    def _searched(self, file: str, builds: _Builds) -> Iterator[Document]:
        path, label, real = Path(file), label_of(file), os.path.realpath(file)
        if path.exists() and not path.is_file():  # reading a pipe could block
            return self._skip(file, SkipReason.UNREADABLE, "not a regular file")
        if path.name in _KUSTOMIZATIONS:
            return self._skip(file, SkipReason.KUSTOMIZATION)
        if path.name in _CHART or (path.name.startswith("values") and str(path.parent) in builds.charts):
            return self._skip(file, SkipReason.CHART)
        if real in builds.patches:
            return self._skip(file, SkipReason.PATCH, "kustomize build shows the result")
        self._units[label] = builds.roots.get(real, label)
        try:
            data = read_file(file)
        except InputError as error:
            return self._skip(file, SkipReason.UNREADABLE, error.message)
        is_template = any(mark in data for mark in _TEMPLATE_MARKS)
        if is_template and _is_chart_template(path, builds.charts):
            return self._skip(file, SkipReason.TEMPLATE, _RENDER)
        text, kinds = self._needed(data)
        if not kinds:
            return self._skip(file, SkipReason.OTHER)
        self.files += 1
        return self._read(file, text, kinds, is_template=is_template)

    def _needed(self, data: bytes) -> tuple[bytes, list[ScannedDocument]]:
        """The text without the documents that nobody reads, and the documents that may be manifests."""
        if data.lstrip()[:1] in (b"{", b"["):
            named = b"kind" in data and b"apiVersion" in data
            whole = whole_json(data) if named else None
            if not named or (whole is not None and not whole.head.kind):
                return b"", []
            return data, [ScannedDocument(0, len(data), "", "", unsure=True)]
        documents = list(scan(data))
        manifests = [document for document in documents if document.unsure or document.kind]
        if manifests == documents and all(self._may_be_read(document) for document in manifests):
            return data, manifests
        for document in manifests:
            if not self._may_be_read(document):
                self.unread[document.kind] += 1
        return without(
            data, documents, lambda document: document in manifests and self._may_be_read(document)
        ), manifests

    def _may_be_read(self, document: ScannedDocument) -> bool:
        if document.unsure or document.kind.endswith("List") or self._is_read is None:
            return True
        return self._is_read(document.api_version, document.kind)

    def _read(
        self, file: str, text: bytes, kinds: Sequence[ScannedDocument], *, is_template: bool
    ) -> Iterator[Document]:
        label, number = label_of(file), 0
        try:
            for document in read_documents(text, label):
                number += 1
                yield document
        except InputError as error:
            sure = [scanned for scanned in kinds if not scanned.unsure and self._may_be_read(scanned)]
            if is_template and not number:
                self.files -= 1
                self._skip(file, SkipReason.TEMPLATE, _RENDER)
            elif sure or number:
                self.problems.append(_unreadable(label, error))
            else:
                self.files -= 1
                reason = SkipReason.OTHER if error.field in ("kind", "apiVersion") else SkipReason.MALFORMED
                self._skip(file, reason, "" if reason is SkipReason.OTHER else error.message)

    def _skip(self, file: str, reason: SkipReason, detail: str = "") -> Iterator[Document]:
        self.skipped.append(SkippedFile(label_of(file), reason, detail))
        return iter(())


def _named(path: str) -> Iterator[Document]:
    """The documents of a file that the user names. Raises InputError."""
    data = read_file(path)
    try:
        yield from read_documents(data, label_of(path))
    except InputError as error:
        if any(mark in data for mark in _TEMPLATE_MARKS):
            error.message += f"; if it is a template, {_RENDER}"
        raise


def _unreadable(label: str, error: InputError) -> Finding:
    place = ": ".join(filter(None, (error.field, error.message)))
    return Finding(
        severity=Severity.ERROR,
        rule="UnreadableFile",
        object=Ref(""),
        field="",
        message=f"{place}; the rest of the file is not checked",
        remedy="correct the file: kubectl refuses it too",
        file=label,
        line=msgspec.UNSET if error.line is None else error.line,
    )


def _is_chart_template(path: Path, charts: set[str]) -> bool:
    folders = path.parents
    return any(folder.name == "templates" and str(folder.parent) in charts for folder in folders)


def _builds(files: Sequence[str]) -> _Builds:
    builds = _Builds({}, set(), set())
    for file in files:
        path = Path(file)
        if path.name in _CHART:
            builds.charts.add(str(path.parent))
        elif path.name in _KUSTOMIZATIONS:
            fields = _kustomization(file)
            for resource in _paths(path.parent, fields, "resources", "bases"):
                builds.roots[resource] = str(path.parent)
            patches = ("patches", "patchesStrategicMerge", "patchesJson6902", "replacements", "transformers")
            builds.patches.update(_paths(path.parent, fields, *patches))
    return builds


def _kustomization(file: str) -> dict[str, Any]:
    try:
        value = next((document.value for document in parse(read_file(file))), None)
    except (InputError, YamlError):
        return {}
    return value if isinstance(value, dict) else {}


def _paths(folder: Path, fields: dict[str, Any], *names: str) -> Iterator[str]:
    """The files that the fields of a kustomization name."""
    for entries in map(fields.get, names):
        for entry in entries if isinstance(entries, list) else ():
            path = entry.get("path") if isinstance(entry, dict) else entry
            if isinstance(path, str) and not {"\n", "\0"} & set(path):  # a patch may be written in place
                yield os.path.realpath(folder / path)
