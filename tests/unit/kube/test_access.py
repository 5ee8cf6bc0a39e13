"""Which server and credentials does a configuration give, and what is said if it gives none?"""

import asyncio
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.kube.access import Access, load
from dovetail.kube.kubeconfig import KubeConfigError

EXEC = "client.authentication.k8s.io/v1"


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def config(cluster: dict[str, Any], user: dict[str, Any] | None = None, name: str = "c") -> dict[str, Any]:
    return {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user or {}}],
    }


def write(file: Path, content: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else msgspec.json.encode(content))
    return file


def access(file: Path | None = None, context: str | None = None) -> Access:
    return asyncio.run(load(str(file) if file else None, context))


HTTP = {"server": "http://127.0.0.1:1/"}
HTTPS: dict[str, Any] = {"server": "https://a"}


def test_token(tmp_path: Path) -> None:
    got = access(write(tmp_path / "k", config(HTTP, {"token": "t"})))
    assert (got.url, got.headers, got.tls, got.proxy) == (
        "http://127.0.0.1:1",
        (("Authorization", "Bearer t"),),
        None,
        None,
    )
    assert got.good_for_seconds == math.inf


def test_user_and_password(tmp_path: Path) -> None:
    got = access(write(tmp_path / "k", config(HTTP, {"username": "u", "password": "p"})))
    assert got.headers == (("Authorization", "Basic dTpw"),)


def test_without_a_user(tmp_path: Path) -> None:
    content = config({"server": "https://127.0.0.1:1"})
    del content["contexts"][0]["context"]["user"]
    assert access(write(tmp_path / "k", content)).headers == ()


def test_a_token_file_is_relative_to_its_kubeconfig_and_trimmed(tmp_path: Path) -> None:
    write(tmp_path / "token", b" t\n")
    got = access(write(tmp_path / "k", config(HTTP, {"tokenFile": "token", "token": "other"})))
    assert got.headers == (("Authorization", "Bearer t"),)
    assert got.good_for_seconds == 60.0


def test_insecure_tls_is_honoured(tmp_path: Path) -> None:
    secure = access(write(tmp_path / "k", config(HTTPS)))
    insecure = access(write(tmp_path / "k", config(HTTPS | {"insecure-skip-tls-verify": True})))
    assert secure.tls is not None
    assert insecure.tls is not None
    assert (secure.tls.check_hostname, insecure.tls.check_hostname) == (True, False)
    assert secure.tls_digest != insecure.tls_digest


@pytest.mark.parametrize(
    ("cluster", "environment", "proxy"),
    [
        ({}, {}, None),
        ({"proxy-url": "http://p:1"}, {}, "http://p:1"),
        ({}, {"HTTP_PROXY": "http://q:1"}, "http://q:1"),
        ({"proxy-url": "http://p:1"}, {"HTTP_PROXY": "http://q:1"}, "http://p:1"),
        ({}, {"HTTP_PROXY": "http://q:1", "NO_PROXY": "127.0.0.1"}, None),
    ],
)
def test_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Any, environment: dict[str, str], proxy: str | None
) -> None:
    for name, value in environment.items():
        # urllib ignores HTTP_PROXY, but not http_proxy, where it might be a header of a CGI request
        monkeypatch.setenv(name.lower(), value)
    assert access(write(tmp_path / "k", config(HTTP | cluster))).proxy == proxy


def test_several_files_the_first_to_name_something_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "2" / "token", b"t")
    one = write(tmp_path / "1" / "k", config({"server": "http://one"}) | {"users": None})
    two_content = config({"server": "http://two"}, {"tokenFile": "token"})
    two_content["contexts"].append({"name": "d", "context": {"cluster": "c", "user": "c"}})
    two = write(tmp_path / "2" / "k", two_content | {"current-context": "d"})
    monkeypatch.setenv("KUBECONFIG", f"{one}:{tmp_path / 'none'}::{two}")
    got = access()
    assert (got.url, got.headers) == ("http://one", (("Authorization", "Bearer t"),))
    assert got.source == f"{one}:{two}"
    assert access(context="d").url == "http://one"


def test_the_default_file(tmp_path: Path) -> None:
    write(tmp_path / "home" / ".kube" / "config", config(HTTP))
    assert access().url == "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a kubeconfig"),
        (b"[1]", "is not a kubeconfig"),
        (b"a: b\nc: }", "is not YAML in line 2"),
        (b"\xff", "is not YAML"),
        (b"{}", "no context is given and no current-context is set"),
        ({"current-context": "c"}, "there is no context 'c'"),
        ({"current-context": "c", "contexts": {}}, "there is no context 'c'"),
        ({"current-context": "c", "contexts": {"a": 1}}, "contexts is not a list"),
        ({"current-context": "c", "contexts": [{"name": "c", "context": [1]}]}, "context 'c' is not a mapping"),
        ({"current-context": "c", "contexts": [{"name": "c"}]}, "context 'c' has no cluster"),
        (config({}), "cluster 'c' has no server"),
        (config(HTTP) | {"clusters": []}, "there is no cluster 'c'"),
        (config(HTTP) | {"users": []}, "there is no user 'c'"),
        (config({"server": "127.0.0.1:1"}), "'127.0.0.1:1' is no address of a server"),
        (config(HTTP | {"proxy-url": "socks5://p"}), "proxy 'socks5://p' is not supported; it must be http or https"),
        (config(HTTP, {"tokenFile": "none"}), "token file FOLDER/none: No such file or directory"),
        (config(HTTP, {"tokenFile": "empty"}), "token file FOLDER/empty is empty"),
        (config(HTTP, {"token": "a\nb"}), "the token has characters that cannot be sent"),
        (config(HTTP, {"auth-provider": {"name": "azure"}}), "auth-provider 'azure' is not supported; use"),
        (config(HTTPS | {"certificate-authority": "none"}), "File does not exists: FOLDER/none"),
        (config(HTTPS | {"certificate-authority": "empty"}), "certificates: FOLDER/empty: "),
        (config(HTTPS | {"certificate-authority-data": "%"}), "certificates: in it: "),
        (config(HTTPS | {"certificate-authority-data": "abc"}), "not usable: Error: Incorrect padding"),
        (config(HTTPS | {"certificate-authority-data": 5}), "not usable: TypeError: "),
        (
            config(HTTPS, {"client-certificate": "empty", "client-key": "empty"}),
            "certificates: FOLDER/empty, FOLDER/empty: ",
        ),
        (config(HTTP, {"exec": {"apiVersion": EXEC}}), "exec plugin without a command"),
        (
            config(HTTP, {"exec": {"apiVersion": EXEC, "command": "./none"}}),
            "exec plugin './none' cannot be run: No such file",
        ),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_file(tmp_path: Path, content: Any, message: str) -> None:
    write(tmp_path / "empty", b"")
    file = write(tmp_path / "k", content)
    with pytest.raises(KubeConfigError) as caught:
        access(file)
    assert str(caught.value).startswith(f"{file}: {message.replace('FOLDER', str(tmp_path))}")
    assert "\n" not in str(caught.value)


def test_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KubeConfigError, match=r"^/none/k: No such file or directory$"):
        access(Path("/none/k"))
    with pytest.raises(KubeConfigError, match=r"/home/.kube/config: does not exist, KUBECONFIG is not set"):
        access()
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a:{tmp_path}/b")
    with pytest.raises(KubeConfigError, match=r"/a:.*/b: KUBECONFIG names no file that exists"):
        access()


def test_a_context_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(KubeConfigError, match="there is no context 'd'"):
        access(write(tmp_path / "k", config(HTTP)), "d")


def test_a_pod_without_a_service_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(KubeConfigError, match=r"^the pod's service account: "):
        access()


# -- exec plugins -----------------------------------------------------------------------------------------------------


def with_plugin(folder: Path, script: str, **more: Any) -> Path:
    plugin = write(folder / "plugin", f"#!/bin/sh\n{script}\n".encode())
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": EXEC, "command": "./plugin", "interactiveMode": "Never", **more}}
    return write(folder / "k", config(HTTP, user))


def credential(**status: Any) -> str:
    text = msgspec.json.encode({"apiVersion": EXEC, "kind": "ExecCredential", "status": status}).decode()
    return f"echo '{text}'"


def test_a_plugin(tmp_path: Path) -> None:
    script = 'test "$A$1" = bc && test -n "$KUBERNETES_EXEC_INFO" && ' + credential(token="t")
    got = access(with_plugin(tmp_path, script, args=["c"], env=[{"name": "A", "value": "b"}]))
    assert got.headers == (("Authorization", "Bearer t"),)
    assert got.good_for_seconds == math.inf


@pytest.mark.parametrize(
    ("expires_at", "seconds"), [("2000-01-01T00:00:00Z", 10.0), ("9999-01-01T00:00:00Z", math.inf)]
)
def test_a_plugins_credentials_expire(tmp_path: Path, expires_at: str, seconds: float) -> None:
    got = access(with_plugin(tmp_path, credential(token="t", expirationTimestamp=expires_at)))
    assert got.good_for_seconds == seconds or got.good_for_seconds > 1e9


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo no 1>&2; echo luck 1>&2; exit 3", "failed with code 3: no luck"),
        ("exit 1", "failed with code 1"),
        ("echo x", "printed no ExecCredential: "),
        ("echo '{}'", "printed no ExecCredential: "),
        ("""echo '{"apiVersion": "v0", "kind": "Pod"}'""", f"printed Pod of v0, not ExecCredential of {EXEC}"),
        (credential(), "gave neither a token nor a certificate with its key"),
        (credential(clientCertificateData="x"), "gave neither a token nor a certificate with its key"),
    ],
)
def test_plugins_that_fail(tmp_path: Path, script: str, message: str) -> None:
    file = with_plugin(tmp_path, script)
    with pytest.raises(KubeConfigError) as caught:
        access(file)
    assert str(caught.value).startswith(f"{file}: exec plugin './plugin' {message}")


def test_a_plugin_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.kube.plugins.TIMEOUT_SECONDS", 1.0)
    file = with_plugin(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 600")
    with pytest.raises(KubeConfigError, match=r"exec plugin './plugin' did not end within 1 s"):
        access(file)
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
