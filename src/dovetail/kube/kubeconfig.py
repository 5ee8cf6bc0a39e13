"""Which cluster and user does a kubeconfig choose?

Reads and merges the files as kubectl does: the first file that names something wins. The result is a kubeconfig of one
context whose file names are absolute, for the official package to make credentials of.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dovetail.values.foreign_text import plain

Section = dict[str, Any]


class KubeConfigError(Exception):
    """Why there is no connection to be had from the configuration: one line that names the file."""

    def __init__(self, message: str) -> None:
        super().__init__(plain(message))


class Chosen(msgspec.Struct, frozen=True):
    """One context of a kubeconfig: its cluster and user, and the file that holds the user."""

    source: str
    context: str
    cluster: Section
    user: Section
    folder: Path


def choose(files: Sequence[Path], context: str | None) -> Chosen:
    """The named context of the files, or the current one; raises KubeConfigError."""
    source = ":".join(str(file) for file in files)
    configs = [(file.parent.absolute(), _read(file)) for file in files]
    name = context or next(
        (str(config["current-context"]) for _, config in configs if config.get("current-context")), ""
    )
    if not name:
        raise KubeConfigError(f"{source}: no context is given and no current-context is set")
    _, chosen = _named(configs, source, "context", name)
    cluster_name, user_name = chosen.get("cluster"), chosen.get("user")
    if not cluster_name:
        raise KubeConfigError(f"{source}: context {name!r} has no cluster")
    folder, cluster = _named(configs, source, "cluster", str(cluster_name))
    cluster = _absolute(cluster, folder, "certificate-authority")
    if not isinstance(cluster.get("server"), str) or not cluster["server"]:
        raise KubeConfigError(f"{source}: cluster {cluster_name!r} has no server")
    if not user_name:
        return Chosen(source, name, cluster, {}, folder)
    folder, user = _named(configs, source, "user", str(user_name))
    user = _absolute(user, folder, "client-certificate", "client-key", "tokenFile")
    return Chosen(source, name, cluster, user, folder)


def _read(file: Path) -> Section:
    try:
        config = yaml.load(file.read_bytes(), Loader=yaml.CSafeLoader)
    except OSError as error:
        raise KubeConfigError(f"{file}: {error.strerror or error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark else ""
        raise KubeConfigError(f"{file}: is not YAML{line}") from None
    if not isinstance(config, dict):
        raise KubeConfigError(f"{file}: is not a kubeconfig")
    return config


def _named(configs: Sequence[tuple[Path, Section]], source: str, what: str, name: str) -> tuple[Path, Section]:
    """The first section of that kind and name, and the folder of its file."""
    for folder, config in configs:
        entries = config.get(f"{what}s") or []
        if not isinstance(entries, list):
            raise KubeConfigError(f"{source}: {what}s is not a list")
        for entry in entries:
            if isinstance(entry, dict) and str(entry.get("name")) == name:
                section = entry.get(what) or {}
                if not isinstance(section, dict):
                    raise KubeConfigError(f"{source}: {what} {name!r} is not a mapping")
                return folder, section
    raise KubeConfigError(f"{source}: there is no {what} {name!r}")


def _absolute(section: Section, folder: Path, *keys: str) -> Section:
    return section | {key: str(folder / str(section[key])) for key in keys if section.get(key)}
