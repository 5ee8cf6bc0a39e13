"""Where is the API server, and what proves who we are?

The official package turns kubeconfigs and service accounts into TLS settings and tokens. An Access is that at one
moment; it says how long it is good for, and is then simply loaded anew, so that rotated tokens, certificates and
plugins' credentials are all taken up in the same way.
"""

import asyncio
import base64
import hashlib
import math
import os
import ssl
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec
from kubernetes.aio import config as official
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from dovetail.kube.kubeconfig import Chosen, KubeConfigError, Section, choose
from dovetail.kube.plugins import run_plugin

TOKEN_FILE_SECONDS = 60.0  # as the official clients; kubelet renews tokens long before they end
CERTIFICATE_FILE_SECONDS = 300.0
SHORTEST_SECONDS = 10.0  # a plugin whose credentials expire at once must not run for every request
EXPIRY_MARGIN_SECONDS = 60.0
LOAD_SECONDS = 330.0  # above what an interactive plugin may take

# The official package has no types; nothing of it leaves this module but text and TLS settings.
_official: Any = official
_rest: Any = RESTClientObject


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the server, as it was configured at one moment."""

    source: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    tls: ssl.SSLContext | None = None
    tls_digest: bytes = b""
    """Equal for equal TLS settings: connections can be kept."""
    server_name: str | None = None
    proxy: str | None = None
    good_for_seconds: float = math.inf

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown if somebody repeats it."""
        words = [word for name, value in self.headers if name == "Authorization" for word in value.split()[1:]]
        passwords = [urlsplit(address).password for address in (self.url, self.proxy) if address]
        if self.headers and self.headers[0][1].startswith("Basic "):
            passwords.append(base64.b64decode(words[0]).decode(errors="replace").partition(":")[2])
        return (*words, *filter(None, passwords))


async def load(kubeconfig: str | None = None, context: str | None = None) -> Access:
    """Read the configuration anew; raises KubeConfigError.

    In this order: the file given, KUBECONFIG, the pod's service account, ~/.kube/config.
    """
    files = _files(kubeconfig, context)
    source = ":".join(map(str, files)) or "the pod's service account"
    try:
        async with asyncio.timeout(LOAD_SECONDS):
            return await _from_files(files, context) if files else _from_pod(source)
    except official.ConfigException as error:
        raise KubeConfigError(f"{source}: {error}") from None
    except TimeoutError:
        raise KubeConfigError(f"{source}: credentials were not had within {LOAD_SECONDS:g} s") from None
    except OSError as error:  # TLS errors too
        words = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise KubeConfigError(f"{source}: {words}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        # What the official package lets through when a value has another type than it expects.
        raise KubeConfigError(f"{source}: not usable: {type(error).__name__}: {error}") from None


def _files(kubeconfig: str | None, context: str | None) -> list[Path]:
    """The kubeconfig files; none means the pod's service account."""
    if kubeconfig:
        return [Path(kubeconfig).expanduser()]
    if named := os.environ.get("KUBECONFIG"):
        files = [Path(name).expanduser() for name in named.split(os.pathsep) if name]
        found = [file for file in files if file.exists()]
        if not found:
            raise KubeConfigError(f"{named}: KUBECONFIG names no file that exists")
        return found
    if context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return []
    default = Path("~/.kube/config").expanduser()
    if not default.exists():
        raise KubeConfigError(f"{default}: does not exist, KUBECONFIG is not set, and this is not a pod")
    return [default]


def _from_pod(source: str) -> Access:
    configuration = Configuration()
    _official.load_incluster_config(client_configuration=configuration, try_refresh_token=False)
    return _access(configuration, source, [], TOKEN_FILE_SECONDS)


async def _from_files(files: list[Path], context: str | None) -> Access:
    chosen = await asyncio.to_thread(choose, files, context)
    user, good_for_seconds = await _plain(chosen)
    name = chosen.context
    config = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": chosen.cluster}],
        "users": [{"name": name, "user": user}],
    }
    configuration = Configuration()
    await _official.load_kube_config_from_dict(config, client_configuration=configuration)
    return _access(configuration, chosen.source, list(_impersonation(user)), good_for_seconds)


async def _plain(chosen: Chosen) -> tuple[Section, float]:
    """The user with what a plugin or a token file says put in, and for how long that is good."""
    user, source = dict(chosen.user), chosen.source
    provider = (user.get("auth-provider") or {}).get("name")
    if provider not in (None, "gcp", "oidc"):
        raise KubeConfigError(f"{source}: auth-provider {provider!r} is not supported; use an exec plugin")
    good_for_seconds = CERTIFICATE_FILE_SECONDS if user.get("client-certificate") else math.inf
    if user.get("tokenFile"):
        file = Path(user.pop("tokenFile"))
        try:
            user["token"] = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise KubeConfigError(f"{source}: token file {file}: {getattr(error, 'strerror', error)}") from None
        if not user["token"]:
            raise KubeConfigError(f"{source}: token file {file} is empty")
        good_for_seconds = min(good_for_seconds, TOKEN_FILE_SECONDS)
    if plugin := user.pop("exec", None):
        given = await run_plugin(plugin, chosen.cluster, chosen.folder, source)
        if given.token:
            user["token"] = given.token
        if given.client_certificate_data and given.client_key_data:
            user["client-certificate-data"] = base64.b64encode(given.client_certificate_data.encode()).decode()
            user["client-key-data"] = base64.b64encode(given.client_key_data.encode()).decode()
        if given.expiration_timestamp:
            left = (given.expiration_timestamp - datetime.now(UTC)).total_seconds()
            good_for_seconds = min(good_for_seconds, max(SHORTEST_SECONDS, left - EXPIRY_MARGIN_SECONDS))
    return user, good_for_seconds


def _access(configuration: Any, source: str, headers: list[tuple[str, str]], good_for_seconds: float) -> Access:
    url = str(configuration.host).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not _has_good_port(url):
        raise KubeConfigError(f"{source}: {url!r} is no address of a server")
    if authorization := configuration.api_key.get("BearerToken"):
        kind, _, secret = str(authorization).partition(" ")
        secret = secret.strip()
        if not secret.isascii() or not secret.isprintable():
            raise KubeConfigError(f"{source}: the token has characters that cannot be sent")
        headers = [("Authorization", f"{kind.capitalize()} {secret}"), *headers]
    proxy = configuration.proxy or _environment_proxy(parts.scheme, parts.hostname)
    if proxy and urlsplit(proxy).scheme not in ("http", "https"):
        raise KubeConfigError(f"{source}: proxy {proxy!r} is not supported; it must be http or https")
    if proxy and not _has_good_port(proxy):
        raise KubeConfigError(f"{source}: proxy {proxy!r} has no port that is a number")
    secure = parts.scheme == "https"
    return Access(
        source=source,
        url=url,
        headers=tuple(headers),
        tls=_tls(configuration, source) if secure else None,
        tls_digest=_digest(configuration) if secure else b"",
        server_name=configuration.tls_server_name,
        proxy=proxy,
        good_for_seconds=good_for_seconds,
    )


def _has_good_port(address: str) -> bool:
    """A slash in a password makes a port of what stands before it."""
    try:
        return urlsplit(address).port != 0
    except ValueError:
        return False


def _impersonation(user: Section) -> Iterator[tuple[str, str]]:
    """The official package ignores these; acting as somebody else than the kubeconfig says would be worse."""
    if user.get("as"):
        yield "Impersonate-User", str(user["as"])
    if user.get("as-uid"):
        yield "Impersonate-Uid", str(user["as-uid"])
    for group in user.get("as-groups") or []:
        yield "Impersonate-Group", str(group)
    for key, values in (user.get("as-user-extra") or {}).items():
        for value in values:
            yield f"Impersonate-Extra-{key}", str(value)


def _environment_proxy(scheme: str, host: str) -> str | None:
    """Asked here and not by the HTTP library, which would also take credentials from ~/.netrc."""
    return None if proxy_bypass(host) else getproxies().get(scheme)


def _tls(configuration: Any, source: str) -> ssl.SSLContext:
    # Clusters' own authorities often lack extensions that the strict mode of newer Pythons wants; Go does not.
    configuration.disable_strict_ssl_verification = True
    try:
        return cast(ssl.SSLContext, _rest(configuration).ssl_context)
    except ssl.SSLError as error:
        # What stands in the kubeconfig itself was put into temporary files, whose names say nothing.
        files = [file for file in _tls_files(configuration) if file.parent != Path(tempfile.gettempdir())]
        raise KubeConfigError(f"{source}: certificates: {', '.join(map(str, files)) or 'in it'}: {error}") from None


def _tls_files(configuration: Any) -> list[Path]:
    names = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    return [Path(name) for name in names if name]


def _digest(configuration: Any) -> bytes:
    digest = hashlib.sha256(repr((configuration.verify_ssl, configuration.tls_server_name)).encode())
    for file in _tls_files(configuration):
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.digest()
