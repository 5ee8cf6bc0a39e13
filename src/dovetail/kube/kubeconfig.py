"""Reads and merges kubeconfig files as kubectl does.

The first file that defines a name wins. File names are relative to the folder of the kubeconfig that contains them.
"""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import msgspec

from dovetail.api.yaml_events import YamlError, parse
from dovetail.values.foreign_text import plain

T = TypeVar("T")

_MOST_NAMED = 10


class KubeConfigError(Exception):
    """The configuration is not usable. The message is one line that names the file."""

    def __init__(self, message: str) -> None:
        super().__init__(plain(message))


class Extension(msgspec.Struct, frozen=True):
    name: str
    extension: Any = None


class Cluster(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The address of a server and how to verify it."""

    server: str | None = None
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    proxy_url: str | None = None
    disable_compression: bool | None = None
    extensions: list[Extension] | None = None


class ExecEnvVar(msgspec.Struct, frozen=True):
    name: str
    value: str


class ExecConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An exec credential plugin."""

    api_version: str | None = None
    command: str | None = None
    args: list[str] | None = None
    env: list[ExecEnvVar] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool | None = None
    interactive_mode: Literal["", "Never", "IfAvailable", "Always"] | None = None


class AuthProvider(msgspec.Struct, frozen=True):
    name: str
    config: dict[str, Any] | None = None


class User(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The credentials of a user, and the user to impersonate."""

    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    username: str | None = None
    password: str | None = None
    as_: str | None = msgspec.field(default=None, name="as")
    as_uid: str | None = None
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None
    auth_provider: AuthProvider | None = None
    exec: ExecConfig | None = None


class _Context(msgspec.Struct, frozen=True):
    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None


class ContextInfo(msgspec.Struct, frozen=True):
    """A context and what it names. In a pod without kubeconfig the context and the cluster have no name."""

    name: str
    cluster: str
    namespace: str


class Section(msgspec.Struct, Generic[T], frozen=True):
    """A named section of a kubeconfig, its location, and the folder for its file names."""

    value: T
    where: str
    folder: Path

    def wrong(self, what: str) -> KubeConfigError:
        return KubeConfigError(f"{self.where}: {what}")

    def content(self, field: str) -> bytes:
        """The data of the field, or the content of its file. Empty if neither is set."""
        name = field.replace("-", "_")
        if data := getattr(self.value, f"{name}_data"):
            try:
                return base64.b64decode("".join(data.split()), validate=True)
            except ValueError as error:
                raise self.wrong(f"{field}-data is not base64: {error}") from None
        file = getattr(self.value, name)
        return self.read(field, file) if file else b""

    def read(self, field: str, name: str) -> bytes:
        """The content of a file that the field names. An empty file is an error."""
        file = self.folder / name
        try:
            content = file.read_bytes()
        except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
            raise self.wrong(f"{field} {file}: {getattr(error, 'strerror', error)}") from None
        if not content.strip():
            raise self.wrong(f"{field} {file} is empty")
        return content


class _KubeConfigFile(msgspec.Struct, frozen=True):
    path: Path
    config: dict[str, Any]


def choose(paths: Sequence[Path], context: str | None) -> tuple[Section[Cluster], Section[User]]:
    """The cluster and user of the context, or of the current one. Raises KubeConfigError."""
    files = [_KubeConfigFile(path, _read(path)) for path in paths]
    _, chosen = _chosen(files, context)
    if not chosen.value.cluster:
        raise chosen.wrong("cluster is missing")
    cluster = _named(files, "cluster", chosen.value.cluster, Cluster)
    if not cluster.value.server:
        raise cluster.wrong("server is missing")
    if not chosen.value.user:
        return cluster, Section(User(), chosen.where, chosen.folder)
    return cluster, _named(files, "user", chosen.value.user, User)


def described(paths: Sequence[Path], context: str | None) -> ContextInfo:
    """The context, or the current one. Raises KubeConfigError."""
    name, chosen = _chosen([_KubeConfigFile(path, _read(path)) for path in paths], context)
    return ContextInfo(name, chosen.value.cluster or "", chosen.value.namespace or "")


def context_names(paths: Sequence[Path]) -> list[str]:
    """The names of all contexts. Raises KubeConfigError."""
    entries = [entry for path in paths for entry in _read(path).get("contexts") or ()]
    return sorted({str(entry["name"]) for entry in entries if isinstance(entry, dict) and "name" in entry})


def _chosen(files: Sequence[_KubeConfigFile], context: str | None) -> tuple[str, Section[_Context]]:
    name = context or next((str(current) for file in files if (current := file.config.get("current-context"))), "")
    if not name:
        sources = ":".join(str(file.path) for file in files)
        raise KubeConfigError(f"{sources}: no context is given and no current-context is set; use --context")
    return name, _named(files, "context", name, _Context)


def _read(path: Path) -> dict[str, Any]:
    try:
        document = next(parse(path.read_bytes()), None)
    except OSError as error:
        raise KubeConfigError(f"{path}: {error.strerror or error}") from None
    except YamlError as error:
        place = "".join(f"{word} {value}: " for word, value in (("line", error.line), ("field", error.field)) if value)
        raise KubeConfigError(f"{path}: {place}{error.message}") from None
    config = document.value if document else None
    if config is None:  # `kubectl config` begins with an empty file
        return {}
    if not isinstance(config, dict):
        raise KubeConfigError(f"{path}: is not a kubeconfig")
    return config


def _entries(file: _KubeConfigFile, kind: str) -> list[dict[str, Any]]:
    entries = file.config.get(f"{kind}s") or []
    if not isinstance(entries, list):
        raise KubeConfigError(f"{file.path}: {kind}s is not a list")
    return [entry for entry in entries if isinstance(entry, dict)]


def _named(files: Sequence[_KubeConfigFile], kind: str, name: str, type_: type[T]) -> Section[T]:
    """The first section of that kind and name."""
    for file in files:
        for entry in _entries(file, kind):
            if str(entry.get("name")) == name:
                where = f"{file.path}: {kind} {name!r}"
                return Section(_converted(entry.get(kind) or {}, type_, where), where, file.path.parent.absolute())
    known = sorted({str(entry.get("name")) for file in files for entry in _entries(file, kind)})
    more = ", …" if len(known) > _MOST_NAMED else ""
    there_is = f"; there is {', '.join(known[:_MOST_NAMED])}{more}" if known else ""
    raise KubeConfigError(f"{':'.join(str(file.path) for file in files)}: there is no {kind} {name!r}{there_is}")


def _converted(section: Any, type_: type[T], where: str) -> T:
    try:
        return msgspec.convert(section, type_)
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at ")
        field = f": {at.replace('`', '').removeprefix('$.')}" if at else ""
        remedy = "; put it in quotes" if what.startswith("Expected `str") else ""
        raise KubeConfigError(f"{where}{field}: {what[0].lower()}{what[1:]}{remedy}") from None
