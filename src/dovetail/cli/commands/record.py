"""`dovetail record`: writes a dump of what the other commands read, and nothing else."""

import gzip
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC
from typing import Any, BinaryIO, Final, cast

import click
import msgspec

from dovetail.api.conversion import converted
from dovetail.api.documents import Document
from dovetail.api.recorded import PODS_NOT_RECORDED
from dovetail.cli.common.completion import complete_files
from dovetail.cli.common.files import one_line_errors, private_file
from dovetail.cli.common.options import CONTEXT, FILES, KUBECONFIG, ClusterSource, now
from dovetail.cli.common.output import Times, count, json_text, problem_lines, without_cycle_search, working, yaml_text
from dovetail.cli.common.read_kinds import ALL_KINDS
from dovetail.cli.common.sources import cluster_documents
from dovetail.model.finding import Finding
from dovetail.values.foreign_text import plain
from dovetail.views.record.anonymizing import Anonymizer
from dovetail.views.record.recording import recorded

_NAMESPACED: Final = frozenset(kind.resource.kind for kind in ALL_KINDS if kind.resource.namespaced)


@click.command("record")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    shell_complete=complete_files,
    help="Write to this file: YAML if its name ends in .yaml or .yml, else JSON; packed if it ends in .gz. "
    "[default: JSON to standard output]",
)
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NAMESPACE",
    help="Only objects of this namespace, and cluster-scoped ones. Can be repeated.  [default: all]",
)
@click.option("--anonymize", is_flag=True, help="Replace names and values of labels by meaningless ones.")
@FILES
@KUBECONFIG
@CONTEXT
@click.option("-q", "--quiet", is_flag=True, help="Only print what could not be read.")
@without_cycle_search()
def command(*, output: str | None, namespaces: tuple[str, ...], anonymize: bool, quiet: bool, **given: Any) -> None:
    """Write a dump of the live cluster for explain, forecast, plan and simulate.

    It leaves out everything that they do not read: Secrets and ConfigMaps, environment variables, images, commands and
    arguments, managed fields, and all annotations except those of Karpenter and of scheduling. With -f, it cleans an
    existing dump in the same way.

    \b
      dovetail record -o cluster.json.gz
      dovetail explain -f cluster.json.gz
    """
    source = ClusterSource(**given, namespace=namespaces[0] if len(namespaces) == 1 else None)
    source.check()
    problems: list[Finding] = []
    recording = _Recording(frozenset(namespaces))
    with one_line_errors(), working("recording …"), _opened(output) as file:
        documents = converted(cluster_documents(source, ALL_KINDS, problems))
        name = (output or "").lower().removesuffix(".gz")
        write = _write_yaml if name.endswith((".yaml", ".yml")) else _write_json
        objects = recording.objects(documents)
        write(file, map(Anonymizer().anonymized, objects) if anonymize else objects)
    lines = problem_lines(problems, Times(now(), UTC))
    if not quiet:
        lines += recording.summary(output)
    if lines:
        click.echo("\n".join(lines), err=True)


class _Recording:
    """Selects objects for the dump, and counts what it leaves out."""

    def __init__(self, namespaces: frozenset[str]) -> None:
        self._namespaces = namespaces
        self._taken: Counter[str] = Counter()
        self._unread: Counter[str] = Counter()
        self._elsewhere = 0
        self._pods_elsewhere: Counter[str] = Counter()  # by node

    def objects(self, documents: Iterable[Document]) -> Iterator[dict[str, Any]]:
        nodes = []  # they say how many of their pods are left out
        for document in documents:
            record = recorded(document)
            if record is None:
                self._unread[f"{document.api_version} {document.kind}"] += 1
            elif self._namespaces and not self._is_wanted(record):
                self._elsewhere += 1
                if document.kind == "Pod" and (node := (record.get("spec") or {}).get("nodeName")):
                    self._pods_elsewhere[node] += 1
            else:
                self._taken[document.kind] += 1
                if self._namespaces and document.kind == "Node":
                    nodes.append(record)
                else:
                    yield record
        for node in nodes:
            if number := self._pods_elsewhere[node["metadata"].get("name", "")]:
                node["metadata"].setdefault("annotations", {})[PODS_NOT_RECORDED] = str(number)
            yield node

    def _is_wanted(self, record: dict[str, Any]) -> bool:
        meta = record["metadata"]
        if record["kind"] == "Namespace":
            return meta.get("name") in self._namespaces
        return record["kind"] not in _NAMESPACED or meta.get("namespace", "default") in self._namespaces

    def summary(self, output: str | None) -> list[str]:
        lines = [f"recorded {_counted(self._taken)}" + (f" in {plain(output)}" if output else "")]
        if self._elsewhere:
            lines.append(f"left out {self._elsewhere} of other namespaces")
        if nodes := sum(number > 0 for number in self._pods_elsewhere.values()):
            has = "1 node has" if nodes == 1 else f"{nodes} nodes have"
            lines.append(f"{has} pods of other namespaces, which may block more than this dump shows")
        if self._unread:
            lines.append(f"left out {_counted(self._unread)}, which no command reads")
        return lines


def _counted(kinds: Counter[str]) -> str:
    listed = ", ".join(f"{number} {plain(kind)}" for kind, number in kinds.most_common())
    return count(kinds.total(), "object") + (f" ({listed})" if listed else "")


# -- writing -----------------------------------------------------------------------------------------------------------

_Write = Callable[[BinaryIO, Iterable[dict[str, Any]]], None]


def _write_json(file: BinaryIO, objects: Iterable[dict[str, Any]]) -> None:
    """A List with one object per line, so that dumps can be compared, and a truncated one can be read."""
    before = head = b'{"apiVersion": "v1", "kind": "List", "items": ['  # written with the first object
    for raw in objects:
        file.write(before + (b"\n" if before is head else b",\n") + json_text(msgspec.json.encode(raw)))
        before = b""
    file.write(before + b"\n]}\n")


def _write_yaml(file: BinaryIO, objects: Iterable[dict[str, Any]]) -> None:
    """A List with its kind last, as kubectl writes it, so that a truncated dump is recognized."""
    before = b"apiVersion: v1\nitems:\n"
    for raw in objects:
        file.write(before + yaml_text([raw]).encode())
        before = b""
    file.write(before + b"kind: List\n")


@contextmanager
def _opened(output: str | None) -> Iterator[BinaryIO]:
    """The file to write, or standard output."""
    if output in (None, "-"):
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    with private_file(output) as file, _packed(file, output) as packed:
        yield packed


@contextmanager
def _packed(file: BinaryIO, output: str) -> Iterator[BinaryIO]:
    if not output.lower().endswith(".gz"):
        yield file
        return
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:  # the same cluster, the same bytes
        yield cast(BinaryIO, packed)
