"""Loads the address and credentials of the API server.

An Access is valid for a limited time and is then loaded again, so that rotated tokens, certificates and credentials of
plugins are picked up in the same way.
"""

import asyncio
import base64
import hashlib
import math
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from urllib.parse import SplitResult, quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec

from dovetail.kube.kubeconfig import (
    AuthProvider,
    Cluster,
    ContextInfo,
    KubeConfigError,
    Section,
    User,
    choose,
    context_names,
    described,
)
from dovetail.kube.plugins import Credential, run_plugin

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_FILE_SECONDS = 60.0  # as the official clients; kubelet renews tokens long before they end
CERTIFICATE_FILE_SECONDS = 300.0
SHORTEST_SECONDS = 10.0  # a plugin whose credentials expire at once must not run for every request
EXPIRY_MARGIN_SECONDS = 60.0
LOAD_SECONDS = 330.0  # above what an interactive plugin may take
HEADER_NAME_SAFE = "!#$&'*+^`|"  # more characters that the name of a header may contain


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The address and credentials of the server at one moment."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    tls: ssl.SSLContext | None = None
    tls_digest: bytes = b""  # equal for equal TLS settings: connections can be kept
    server_name: str | None = None
    proxy: str | None = None
    good_for_seconds: float = math.inf

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that must not appear in messages."""
        words = [word for name, value in self.headers if name == "Authorization" for word in value.split()[1:]]
        passwords = [urlsplit(address).password for address in (self.url, self.proxy) if address]
        if self.headers and self.headers[0][1].startswith("Basic "):
            passwords.append(base64.b64decode(words[0]).decode(errors="replace").partition(":")[2])
        return (*words, *filter(None, passwords))


class _TokenClaims(msgspec.Struct, frozen=True):
    exp: float = math.inf


async def load(kubeconfig: str | None = None, context: str | None = None) -> ClientConfig:
    """Read the file given, KUBECONFIG, the pod's service account, or ~/.kube/config. Raises KubeConfigError."""
    files = _files(kubeconfig, context)
    source = ":".join(map(str, files)) or "the pod's service account"
    try:
        async with asyncio.timeout(LOAD_SECONDS):
            cluster, user = await asyncio.to_thread(choose, files, context) if files else _of_pod(source)
            static = user.value.token or user.value.token_file or user.value.username  # as kubectl: these come first
            plugin = None if static else user.value.exec
            credential = await run_plugin(plugin, user, cluster) if plugin else Credential()
            return await asyncio.to_thread(_access, cluster, user, credential)
    except TimeoutError:
        raise KubeConfigError(f"{source}: credentials were not had within {LOAD_SECONDS:g} s") from None
    except OSError as error:
        words = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise KubeConfigError(f"{source}: {words}") from None


def context_info(kubeconfig: str | None = None, context: str | None = None) -> ContextInfo:
    """The context that `load` uses. Raises KubeConfigError."""
    files = _files(kubeconfig, context)
    if files:
        return described(files, context)
    namespace = SERVICE_ACCOUNT / "namespace"
    with suppress(OSError):
        return ContextInfo("", "", namespace.read_text(encoding="utf-8").strip())
    return ContextInfo("", "", "")


def contexts(kubeconfig: str | None = None) -> list[str]:
    """The names of the contexts in the files that `load` uses. Raises KubeConfigError."""
    return context_names(_files(kubeconfig, None))


def _files(kubeconfig: str | None, context: str | None) -> list[Path]:
    """The kubeconfig files; none means the pod's service account."""
    if kubeconfig:
        return [Path(kubeconfig).expanduser()]
    if named := os.environ.get("KUBECONFIG"):
        files = [Path(name).expanduser() for name in named.split(os.pathsep) if name]
        existing = [file for file in files if file.exists()]
        if not existing:
            raise KubeConfigError(f"{named}: KUBECONFIG names no file that exists")
        return existing
    if context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return []
    default = Path("~/.kube/config").expanduser()
    if not default.exists():
        raise KubeConfigError(f"{default}: does not exist, KUBECONFIG is not set, and this is not a pod")
    return [default]


def _of_pod(source: str) -> tuple[Section[Cluster], Section[User]]:
    """The service account of the pod, in the form of a kubeconfig."""
    if not SERVICE_ACCOUNT.exists():
        raise KubeConfigError(f"{source}: {SERVICE_ACCOUNT} does not exist; see automountServiceAccountToken")
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT") or "443"
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    cluster = Cluster(server=server, certificate_authority="ca.crt")
    return Section(cluster, source, SERVICE_ACCOUNT), Section(User(token_file="token"), source, SERVICE_ACCOUNT)


def _access(cluster: Section[Cluster], user: Section[User], credential: Credential) -> ClientConfig:
    url = str(cluster.value.server).rstrip("/")
    parts = _split(url)
    if parts is None or not parts.hostname:
        raise cluster.wrong(f"server {url!r} is no address of a server; write https://HOST:PORT")
    proxy = cluster.value.proxy_url or _environment_proxy(parts.scheme, parts.hostname)
    if proxy and _split(proxy) is None:
        raise cluster.wrong(f"proxy {proxy!r} is not supported; write http://HOST:PORT or https://HOST:PORT")
    authorization, good_for_seconds = _authorization(user, credential)
    headers = [*authorization, *_impersonation(user)]
    for name, value in headers:
        if not value.isprintable() or (name == "Authorization" and not value.isascii()):
            what = "the token" if name == "Authorization" else f"{value!r}"
            raise user.wrong(f"{what} has characters that cannot be sent")
    tls, digest = _tls(cluster, user, credential) if parts.scheme == "https" else (None, b"")
    return ClientConfig(
        url=url,
        headers=tuple(headers),
        tls=tls,
        tls_digest=digest,
        server_name=cluster.value.tls_server_name or None,
        proxy=proxy,
        good_for_seconds=good_for_seconds,
    )


def _split(address: str) -> SplitResult | None:
    """The parts of an HTTP address; None if it is not one."""
    try:
        parts = urlsplit(address)
        # With a slash in the password, the text before it looks like a port.
        return parts if parts.scheme in ("http", "https") and parts.port != 0 else None
    except ValueError:
        return None


def _environment_proxy(scheme: str, host: str) -> str | None:
    """The proxy from the environment, as kubectl finds it: none for this machine and for hosts or networks in NO_PROXY.

    The HTTP library does not do this, because it would also take credentials from ~/.netrc.
    """
    proxies = getproxies()
    if host == "localhost" or proxy_bypass(host):
        return None
    try:
        address = ip_address(host)
    except ValueError:
        return proxies.get(scheme)
    direct = address.is_loopback or any(address in network for network in _networks(proxies.get("no", "")))
    return None if direct else proxies.get(scheme)


def _networks(no_proxy: str) -> Iterator[IPv4Network | IPv6Network]:
    for part in no_proxy.split(","):
        with suppress(ValueError):  # it is a name
            yield ip_network(part.strip(), strict=False)


def _authorization(user: Section[User], credential: Credential) -> tuple[list[tuple[str, str]], float]:
    """The Authorization header, if any, and the seconds until the credentials must be loaded again."""
    value, token = user.value, credential.token
    good_for_seconds = CERTIFICATE_FILE_SECONDS if value.client_certificate else math.inf
    if value.token_file:
        try:
            token = user.read("tokenFile", value.token_file).decode()
        except UnicodeDecodeError:
            raise user.wrong(f"tokenFile {user.folder / value.token_file} is not text") from None
        good_for_seconds = min(good_for_seconds, TOKEN_FILE_SECONDS)
    elif value.token:
        token = value.token
    elif value.username:
        pair = base64.b64encode(f"{value.username}:{value.password or ''}".encode()).decode()
        return [("Authorization", f"Basic {pair}")], good_for_seconds
    elif credential.expiration_timestamp:
        good_for_seconds = min(good_for_seconds, _until_renewal(credential.expiration_timestamp.timestamp()))
    elif value.auth_provider and not value.exec:
        token, expires_at = _id_token(value.auth_provider, user)
        good_for_seconds = min(good_for_seconds, _until_renewal(expires_at))
    return [("Authorization", f"Bearer {token.strip()}")] if token else [], good_for_seconds


def _until_renewal(expires_at: float) -> float:
    return max(SHORTEST_SECONDS, expires_at - time.time() - EXPIRY_MARGIN_SECONDS)


def _id_token(provider: AuthProvider, user: Section[User]) -> tuple[str, float]:
    """The token that kubectl keeps in the kubeconfig, and when it expires.

    We do not renew it: some providers issue a new refresh token each time and would then refuse kubectl, which has the
    old.
    """
    if provider.name != "oidc":
        raise user.wrong(f"auth-provider {provider.name!r} is not supported; use an exec plugin")
    token = str((provider.config or {}).get("id-token") or "")
    try:
        expires_at = msgspec.json.decode(base64.urlsafe_b64decode(token.split(".")[1] + "=="), type=_TokenClaims).exp
    except (IndexError, ValueError, msgspec.MsgspecError):
        raise user.wrong("auth-provider 'oidc' has no id-token; have kubectl log in, or use an exec plugin") from None
    if expires_at <= time.time():
        raise user.wrong("auth-provider 'oidc': id-token has expired; run `kubectl version`, which renews it")
    return token, expires_at


def _impersonation(user: Section[User]) -> Iterator[tuple[str, str]]:
    value = user.value
    if value.as_:
        yield "Impersonate-User", value.as_
    elif value.as_uid or value.as_groups or value.as_user_extra:
        raise user.wrong("as-uid, as-groups and as-user-extra need `as`, the user to act as")
    if value.as_uid:
        yield "Impersonate-Uid", value.as_uid
    for group in value.as_groups or ():
        yield "Impersonate-Group", group
    for key, words in (value.as_user_extra or {}).items():
        for word in words:
            yield f"Impersonate-Extra-{quote(key, safe=HEADER_NAME_SAFE)}", word


def _tls(cluster: Section[Cluster], user: Section[User], credential: Credential) -> tuple[ssl.SSLContext, bytes]:
    """The TLS settings, and a digest that is equal for equal settings."""
    insecure = bool(cluster.value.insecure_skip_tls_verify)
    authority = b"" if insecure else cluster.content("certificate-authority")
    if credential.client_certificate_data and credential.client_key_data:
        certificate, key = credential.client_certificate_data.encode(), credential.client_key_data.encode()
    else:
        certificate, key = user.content("client-certificate"), user.content("client-key")
    try:
        # A certificate may have comments in any language.
        context = ssl.create_default_context(cadata=authority.decode("ascii", "ignore") or None)
    except (ssl.SSLError, ValueError) as error:
        raise cluster.wrong(f"certificate-authority has no certificate in PEM form: {error}") from None
    # As Go: a cluster's own authority may lack extensions, and may be one that another one has signed.
    context.verify_flags = (context.verify_flags & ~ssl.VERIFY_X509_STRICT) | ssl.VERIFY_X509_PARTIAL_CHAIN
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate and not key and b"PRIVATE KEY" not in certificate:
        raise user.wrong("client-certificate without a client-key")
    if certificate:
        with _private_file(certificate + b"\n" + key) as file:
            try:
                context.load_cert_chain(file, password="")  # or OpenSSL asks for one at the terminal
            except ssl.SSLError as error:
                words = "are no certificate with its key in PEM form, without a password"
                raise user.wrong(f"client-certificate and client-key {words}: {error}") from None
    settings = (insecure, cluster.value.tls_server_name, authority, certificate, key)
    return context, hashlib.sha256(repr(settings).encode()).digest()


@contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """A file with this content, because OpenSSL reads keys only from files."""
    if sys.platform == "linux":  # in memory: a pod may have no folder that it can write to
        with os.fdopen(os.memfd_create("client-certificate"), "wb") as memory:
            memory.write(content)
            memory.flush()
            yield f"/proc/self/fd/{memory.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
