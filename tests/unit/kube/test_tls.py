"""Which servers are trusted, and which certificates prove who we are?"""

import asyncio
import base64
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from dovetail.kube import KubeConfigError, RetryPolicy, connect
from dovetail.kube.access import load
from dovetail.ports import NODES, Unavailable

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")

NAME = {"tls-server-name": "api.internal"}
ROOT = {"certificate-authority": "root.crt"}
FILES = {"client-certificate": "me.crt", "client-key": "me.key"}
EXEC = "client.authentication.k8s.io/v1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server's certificate for api.internal below an intermediate and a root authority, and a client's."""
    folder = tmp_path_factory.mktemp("certificates")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")

    def make(name: str, by: str | None, *extensions: str) -> None:
        signed = ("-CA", f"{by}.crt", "-CAkey", f"{by}.key") if by else ()
        added = [word for extension in extensions for word in ("-addext", extension)]
        command = ["req", "-x509", *key, *signed, *added, "-subj", f"/CN={name}"]
        command += ["-keyout", f"{name}.key", "-out", f"{name}.crt"]
        subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)

    make("root", None)
    make("middle", "root", "basicConstraints=critical,CA:TRUE")
    make("server", "middle", "basicConstraints=CA:FALSE", "subjectAltName=DNS:api.internal")
    make("me", "root", "basicConstraints=CA:FALSE")
    make("other", None)
    (folder / "chain.crt").write_bytes((folder / "server.crt").read_bytes() + (folder / "middle.crt").read_bytes())
    (folder / "commented.crt").write_bytes("# Größe\n".encode() + (folder / "root.crt").read_bytes())
    (folder / "both.pem").write_bytes((folder / "me.crt").read_bytes() + (folder / "me.key").read_bytes())
    encrypt = ["openssl", "ec", "-aes256", "-passout", "pass:x", "-in", "me.key", "-out", "encrypted.key"]
    subprocess.run(encrypt, cwd=folder, check=True, capture_output=True)
    return folder


def data(file: Path) -> str:
    return base64.encodebytes(file.read_bytes()).decode()  # in lines, as some write it


def resolved(folder: Path, section: dict[str, Any]) -> dict[str, Any]:
    """The section with the content of the files that its fields of data name."""
    return {key: data(folder / value) if key.endswith("-data") else value for key, value in section.items()}


def kubeconfig(folder: Path, server: str, cluster: dict[str, Any], user: dict[str, Any]) -> str:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server} | resolved(folder, cluster)}],
        "users": [{"name": "u", "user": resolved(folder, user)}],
    }
    file = folder / "kubeconfig"
    file.write_bytes(msgspec.json.encode(config))
    return str(file)


def client_name(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> str | None:
    """Whom the server takes us for, by the certificate that we show."""
    names: list[str | None] = []

    async def handle(request: web.Request) -> web.Response:
        assert request.transport is not None
        subject = request.transport.get_extra_info("ssl_object").getpeercert()
        names.append(subject["subject"][0][0][1] if subject else None)
        return web.json_response({"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": []})

    async def scenario() -> None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "root.crt")
        tls.verify_mode = ssl.CERT_OPTIONAL
        tls.verify_flags &= ~ssl.VERIFY_X509_STRICT  # on by default since Python 3.13, and not in API servers
        tls.load_cert_chain(folder / "chain.crt", folder / "server.key")
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
            file = kubeconfig(folder, f"https://127.0.0.1:{runner.addresses[0][1]}", cluster, user)
            async with connect(kubeconfig=file, patience=RetryPolicy(attempts=1)) as api:
                await api.list(NODES)
        finally:
            await runner.cleanup()

    asyncio.run(scenario())
    return names[0]


@pytest.mark.parametrize(
    "cluster",
    [
        NAME | ROOT,
        NAME | {"certificate-authority-data": "root.crt"},
        NAME | {"certificate-authority-data": "root.crt", "certificate-authority": "none"},
        NAME | {"certificate-authority": "middle.crt"},
        NAME | {"certificate-authority": "commented.crt"},
        {"insecure-skip-tls-verify": True},
        NAME | {"insecure-skip-tls-verify": True, "certificate-authority": "other.crt"},
    ],
)
def test_servers_that_are_trusted(folder: Path, cluster: dict[str, Any]) -> None:
    assert client_name(folder, cluster, {}) is None


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        (NAME, "certificate verify failed"),
        (ROOT, "certificate verify failed: IP address mismatch"),
        (ROOT | {"tls-server-name": "other.internal"}, "certificate verify failed: Hostname mismatch"),
        (NAME | {"certificate-authority": "other.crt"}, "certificate verify failed"),
        (NAME | ROOT | {"insecure-skip-tls-verify": False, "certificate-authority": "me.crt"}, "verify failed"),
    ],
)
def test_servers_that_are_not_trusted(folder: Path, cluster: dict[str, Any], message: str) -> None:
    with pytest.raises(Unavailable, match=message):
        client_name(folder, cluster, {})


@pytest.mark.parametrize(
    "user",
    [
        FILES,
        {"client-certificate-data": "me.crt", "client-key-data": "me.key"},
        {"client-certificate": "me.crt", "client-key-data": "me.key"},
        FILES | {"client-certificate-data": "me.crt", "client-certificate": "none"},
        {"client-certificate": "both.pem"},
        FILES | {"token": "t"},
    ],
)
def test_client_certificates(folder: Path, user: dict[str, Any]) -> None:
    assert client_name(folder, NAME | ROOT, user) == "me"


def test_the_certificate_of_a_plugin(folder: Path) -> None:
    status = {
        "clientCertificateData": (folder / "me.crt").read_text(),
        "clientKeyData": (folder / "me.key").read_text(),
    }
    answer = {"apiVersion": EXEC, "kind": "ExecCredential", "status": status}
    (folder / "answer").write_bytes(msgspec.json.encode(answer))
    plugin = {"apiVersion": EXEC, "command": "cat", "args": [str(folder / "answer")], "interactiveMode": "Never"}
    assert client_name(folder, NAME | ROOT, {"exec": plugin}) == "me"


@pytest.mark.parametrize(
    "user",
    [
        {"client-certificate": "me.crt", "client-key": "encrypted.key"},
        {"client-certificate": "me.crt", "client-key": "root.key"},
        {"client-certificate": "me.key", "client-key": "me.crt", "client-certificate-data": "root.key"},
    ],
)
def test_keys_that_do_not_fit_are_told_and_no_password_is_asked_for(folder: Path, user: dict[str, Any]) -> None:
    file = kubeconfig(folder, "https://a", {}, user)
    with pytest.raises(
        KubeConfigError, match=r"user 'u': client-certificate and client-key are no certificate with its"
    ):
        asyncio.run(load(file))


def test_a_certificate_without_a_key(folder: Path) -> None:
    file = kubeconfig(folder, "https://a", {}, {"client-certificate": "me.crt"})
    with pytest.raises(KubeConfigError, match=r"user 'u': client-certificate without a client-key$"):
        asyncio.run(load(file))


def test_settings_differ_if_a_certificate_does(folder: Path) -> None:
    def digest(cluster: dict[str, Any], user: dict[str, Any]) -> bytes:
        return asyncio.run(load(kubeconfig(folder, "https://a", cluster, user))).tls_digest

    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        (ROOT, {}),
        (ROOT, FILES),
        (NAME | ROOT, FILES),
        ({"certificate-authority": "middle.crt"}, FILES),
    ]
    assert len({digest(*case) for case in cases}) == len(cases)
    assert digest(ROOT, FILES) == digest({"certificate-authority-data": "root.crt"}, FILES)
