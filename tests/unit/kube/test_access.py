"""Which server and credentials does a configuration give, and what is said if it gives none?"""

import asyncio
import base64
import math
import ssl
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.kube.access import ClientConfig, load
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


def access(file: Path | None = None, context: str | None = None) -> ClientConfig:
    return asyncio.run(load(str(file) if file else None, context))


HTTP: dict[str, Any] = {"server": "http://127.0.0.1:1/"}
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
    ("server", "cluster", "environment", "proxy"),
    [
        ("http://a", {}, {}, None),
        ("http://a", {"proxy-url": "http://p:1"}, {}, "http://p:1"),
        ("http://a", {}, {"HTTP_PROXY": "http://q:1"}, "http://q:1"),
        ("http://a", {"proxy-url": "http://p:1"}, {"HTTP_PROXY": "http://q:1"}, "http://p:1"),
        ("http://a.b", {}, {"HTTP_PROXY": "http://q:1", "NO_PROXY": "c,.b"}, None),
        ("http://10.1.2.3", {}, {"HTTP_PROXY": "http://q:1", "NO_PROXY": "10.1.2.3"}, None),
        ("http://10.1.2.3", {}, {"HTTP_PROXY": "http://q:1", "NO_PROXY": "fd00::/8, 10.0.0.0/8"}, None),
        ("http://[fd00::1]", {}, {"HTTP_PROXY": "http://q:1", "NO_PROXY": "fd00::/8, 10.0.0.0/8"}, None),
        ("http://11.1.2.3", {}, {"HTTP_PROXY": "http://q:1", "NO_PROXY": "fd00::/8, 10.0.0.0/8"}, "http://q:1"),
        ("http://127.0.0.1", {}, {"HTTP_PROXY": "http://q:1"}, None),
        ("http://localhost", {}, {"HTTP_PROXY": "http://q:1"}, None),
        ("http://127.0.0.1", {"proxy-url": "http://p:1"}, {}, "http://p:1"),
    ],
)
def test_proxy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    server: str,
    cluster: Any,
    environment: dict[str, str],
    proxy: str | None,
) -> None:
    for name, value in environment.items():
        # urllib ignores HTTP_PROXY, but not http_proxy, where it might be a header of a CGI request
        monkeypatch.setenv(name.lower(), value)
    assert access(write(tmp_path / "k", config({"server": server} | cluster))).proxy == proxy


def test_several_files_the_first_to_name_something_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "2" / "token", b"t")
    one = write(tmp_path / "1" / "k", config({"server": "http://one"}) | {"users": None})
    two_content = config({"server": "http://two"}, {"tokenFile": "token"})
    two_content["contexts"].append({"name": "d", "context": {"cluster": "c", "user": "c"}})
    two = write(tmp_path / "2" / "k", two_content | {"current-context": "d"})
    monkeypatch.setenv("KUBECONFIG", f"{one}:{tmp_path / 'none'}::{two}")
    got = access()
    assert (got.url, got.headers) == ("http://one", (("Authorization", "Bearer t"),))
    assert access(context="d").url == "http://one"


def test_an_empty_file_among_several_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [write(tmp_path / "1", b""), write(tmp_path / "2", config(HTTP))]
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, files)))
    assert access().url == "http://127.0.0.1:1"


def test_the_default_file(tmp_path: Path) -> None:
    write(tmp_path / "home" / ".kube" / "config", config(HTTP))
    assert access().url == "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no context is given and no current-context is set; use --context"),
        (b"[1]", "is not a kubeconfig"),
        (b"a: b\nc: }", "line 2: not valid YAML: "),
        (b"\xff", "line 1: not valid YAML: "),
        (b"users: {a: {~: 6}}", "line 1: field users.a: a key must be a string, not null"),
        (b"{}", "no context is given and no current-context is set"),
        ({"current-context": "c"}, "there is no context 'c'"),
        ({"current-context": "c", "contexts": {}}, "there is no context 'c'"),
        ({"current-context": "c", "contexts": {"a": 1}}, "contexts is not a list"),
        (
            {"current-context": "c", "contexts": [{"name": "c", "context": [1]}]},
            "context 'c': expected `object`, got `array`",
        ),
        ({"current-context": "c", "contexts": [{"name": "c"}]}, "context 'c': cluster is missing"),
        (config({}), "cluster 'c': server is missing"),
        (config(HTTP) | {"clusters": []}, "there is no cluster 'c'"),
        (config(HTTP) | {"users": []}, "there is no user 'c'"),
        (
            config({"server": "127.0.0.1:1"}),
            "cluster 'c': server '127.0.0.1:1' is no address of a server; write https://",
        ),
        (config({"server": "https://[::1"}), "cluster 'c': server 'https://[::1' is no address of a server"),
        (config({"server": 5}), "cluster 'c': server: expected `str | null`, got `int`; put it in quotes"),
        (config(HTTP | {"proxy-url": "socks5://p"}), "cluster 'c': proxy 'socks5://p' is not supported; write http://"),
        (
            config(HTTP | {"insecure-skip-tls-verify": "false"}),
            "cluster 'c': insecure-skip-tls-verify: expected `bool | null`, got `str`",
        ),
        (config(HTTP, {"tokenFile": "none"}), "user 'c': tokenFile FOLDER/none: No such file or directory"),
        (config(HTTP, {"tokenFile": "empty"}), "user 'c': tokenFile FOLDER/empty is empty"),
        (config(HTTP, {"tokenFile": "binary"}), "user 'c': tokenFile FOLDER/binary is not text"),
        (config(HTTP, {"token": "a\nb"}), "user 'c': the token has characters that cannot be sent"),
        (config(HTTP, {"token": 123456}), "user 'c': token: expected `str | null`, got `int`; put it in quotes"),
        (config(HTTP, {"as": "a\nb"}), "user 'c': 'a\\nb' has characters that cannot be sent"),
        (config(HTTP, {"as-groups": ["a"]}), "user 'c': as-uid, as-groups and as-user-extra need `as`"),
        (
            config(HTTP, {"auth-provider": {"name": "azure"}}),
            "user 'c': auth-provider 'azure' is not supported; use an",
        ),
        (config(HTTP, {"auth-provider": {"name": "gcp"}}), "user 'c': auth-provider 'gcp' is not supported; use an"),
        (
            config(HTTP, {"auth-provider": {"name": "oidc"}}),
            "user 'c': auth-provider 'oidc' has no id-token; have kubectl",
        ),
        (
            config(HTTPS | {"certificate-authority": "none"}),
            "cluster 'c': certificate-authority FOLDER/none: No such file or directory",
        ),
        (
            config(HTTPS | {"certificate-authority": "empty"}),
            "cluster 'c': certificate-authority FOLDER/empty is empty",
        ),
        (
            config(HTTPS | {"certificate-authority": "k"}),
            "cluster 'c': certificate-authority has no certificate in PEM",
        ),
        (
            config(HTTPS | {"certificate-authority-data": "%"}),
            "cluster 'c': certificate-authority-data is not base64: ",
        ),
        (
            config(HTTPS | {"certificate-authority-data": "abc"}),
            "cluster 'c': certificate-authority-data is not base64: ",
        ),
        (config(HTTPS | {"certificate-authority-data": 5}), "cluster 'c': certificate-authority-data: expected `str"),
        (
            config(HTTPS, {"client-certificate": "k", "client-key": "k"}),
            "user 'c': client-certificate and client-key are no certificate with its key in PEM form",
        ),
        (config(HTTP, {"exec": {"apiVersion": EXEC}}), "user 'c': exec plugin without a command"),
        (
            config(HTTP, {"exec": {"apiVersion": EXEC, "command": "./none", "installHint": "See\nhere."}}),
            "user 'c': exec plugin './none' cannot be run: No such file or directory; See here.",
        ),
        (
            config(HTTP, {"exec": {"command": "true"}}),
            "user 'c': exec plugin 'true' has apiVersion None; write client.authentication.k8s.io/v1 or",
        ),
        (
            config(HTTP, {"exec": {"apiVersion": EXEC, "command": "true", "interactiveMode": "Perhaps"}}),
            "user 'c': exec.interactiveMode: invalid enum value 'Perhaps'",
        ),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_file(tmp_path: Path, content: Any, message: str) -> None:
    write(tmp_path / "empty", b"")
    write(tmp_path / "binary", b"\xff")
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


# -- the pod's service account -----------------------------------------------------------------------------------------


@pytest.fixture
def service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that kubelet would fill, with a token and an authority."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    monkeypatch.setattr("dovetail.kube.access.SERVICE_ACCOUNT", tmp_path / "account")
    write(tmp_path / "account" / "ca.crt", certificate())
    return write(tmp_path / "account" / "token", b"t\n").parent


def certificate() -> bytes:
    found = ssl.create_default_context().get_ca_certs(binary_form=True)
    return ssl.DER_cert_to_PEM_cert(found[0]).encode()


def test_a_pod(service_account: Path) -> None:
    got = access()
    assert (got.url, got.headers, got.good_for_seconds) == (
        "https://10.0.0.1:6443",
        (("Authorization", "Bearer t"),),
        60.0,
    )
    assert got.tls is not None
    assert (got.tls.verify_mode, len(got.tls.get_ca_certs())) == (ssl.CERT_REQUIRED, 1)
    write(service_account / "token", b"rotated")
    assert access().headers == (("Authorization", "Bearer rotated"),)


@pytest.mark.usefixtures("service_account")
def test_a_pod_with_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    assert access().url == "https://[fd00::1]:6443"


@pytest.mark.usefixtures("service_account")
def test_a_context_or_a_kubeconfig_comes_before_the_service_account(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = write(tmp_path / "home" / ".kube" / "config", config(HTTP))
    assert access(context="c").url == "http://127.0.0.1:1"
    monkeypatch.setenv("KUBECONFIG", str(file))
    assert access().url == "http://127.0.0.1:1"


@pytest.mark.parametrize("name", ["token", "ca.crt"])
def test_a_pod_with_half_a_service_account(service_account: Path, name: str) -> None:
    (service_account / name).unlink()
    with pytest.raises(KubeConfigError, match=rf"^the pod's service account: .*/account/{name}: No such file"):
        access()


def test_a_pod_without_a_service_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(KubeConfigError, match=r"^the pod's service account: .* see automountServiceAccountToken$"):
        access()


# -- who we are --------------------------------------------------------------------------------------------------------


def test_a_user_without_a_password(tmp_path: Path) -> None:
    got = access(write(tmp_path / "k", config(HTTP, {"username": "u"})))
    assert got.headers == (("Authorization", "Basic dTo="),)


def test_of_several_credentials_kubectl_would_take_the_same(tmp_path: Path) -> None:
    later = {
        "username": "u",
        "exec": {"apiVersion": EXEC, "command": "./none"},
        "auth-provider": {"name": "azure"},
    }
    got = access(write(tmp_path / "k", config(HTTP, {"token": "t"} | later)))
    assert got.headers == (("Authorization", "Bearer t"),)
    assert access(write(tmp_path / "k", config(HTTP, later))).headers == (("Authorization", "Basic dTo="),)


def test_null_is_as_if_nothing_were_there(tmp_path: Path) -> None:
    cluster = HTTP | dict.fromkeys(("certificate-authority", "certificate-authority-data", "proxy-url", "extensions"))
    user = {"token": "t"} | dict.fromkeys(("tokenFile", "exec", "auth-provider", "as", "as-groups", "as-user-extra"))
    assert access(write(tmp_path / "k", config(cluster, user))).headers == (("Authorization", "Bearer t"),)


def test_acting_as_somebody_else(tmp_path: Path) -> None:
    user = {"as": "é", "as-uid": "1", "as-groups": ["a", "b"], "as-user-extra": {"a.b/c%": ["d", "e"], "f": []}}
    got = access(write(tmp_path / "k", config(HTTP, {"token": "t"} | user)))
    assert got.headers == (
        ("Authorization", "Bearer t"),
        ("Impersonate-User", "é"),
        ("Impersonate-Uid", "1"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-a.b%2Fc%25", "d"),
        ("Impersonate-Extra-a.b%2Fc%25", "e"),
    )


def id_token(claims: Any) -> str:
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (b"{}", claims, b"x"))


@pytest.mark.parametrize(("claims", "good"), [(b'{"exp": 99999999999}', 1e9), (b"{}", math.inf)])
def test_the_id_token_of_kubectl(tmp_path: Path, claims: bytes, good: float) -> None:
    provider = {"name": "oidc", "config": {"id-token": id_token(claims)}}
    got = access(write(tmp_path / "k", config(HTTP, {"auth-provider": provider})))
    assert got.headers == (("Authorization", f"Bearer {id_token(claims)}"),)
    assert got.good_for_seconds >= good


def test_an_id_token_that_has_expired(tmp_path: Path) -> None:
    provider = {"name": "oidc", "config": {"id-token": id_token(b'{"exp": 1}'), "refresh-token": "r"}}
    with pytest.raises(KubeConfigError, match=r"/k: user 'c': .* id-token has expired; run `kubectl version`"):
        access(write(tmp_path / "k", config(HTTP, {"auth-provider": provider})))


# -- exec plugins -----------------------------------------------------------------------------------------------------


def with_plugin(folder: Path, script: str, *, cluster: dict[str, Any] = HTTP, **more: Any) -> Path:
    plugin = write(folder / "plugin", f"#!/bin/sh\n{script}\n".encode())
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": EXEC, "command": "./plugin", "interactiveMode": "Never", **more}}
    return write(folder / "k", config(cluster, user))


def credential(api_version: str = EXEC, **status: Any) -> str:
    text = msgspec.json.encode({"apiVersion": api_version, "kind": "ExecCredential", "status": status}).decode()
    return f"echo '{text}'"


def test_a_plugin(tmp_path: Path) -> None:
    script = 'test "$A$1" = bc && test -n "$KUBERNETES_EXEC_INFO" && ' + credential(token="t")
    got = access(with_plugin(tmp_path, script, args=["c"], env=[{"name": "A", "value": "b"}]))
    assert got.headers == (("Authorization", "Bearer t"),)
    assert got.good_for_seconds == math.inf


def test_a_plugin_of_the_beta(tmp_path: Path) -> None:
    version = "client.authentication.k8s.io/v1beta1"
    file = with_plugin(tmp_path, credential(version, token="t"), apiVersion=version, args=None, env=None)
    assert access(file).headers == (("Authorization", "Bearer t"),)


@pytest.mark.parametrize("told", [True, False])
def test_a_plugin_is_told_of_the_cluster_if_it_asks(tmp_path: Path, told: bool) -> None:
    write(tmp_path / "ca.crt", b"an authority")
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    cluster = {"certificate-authority": "ca.crt", "tls-server-name": "n", "extensions": [{"name": "other"}, extension]}
    script = f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; ' + credential(token="t")
    access(with_plugin(tmp_path, script, cluster=HTTP | cluster, provideClusterInfo=told))
    info = msgspec.json.decode((tmp_path / "info").read_bytes())
    assert (info["apiVersion"], info["kind"], info["spec"]["interactive"]) == (EXEC, "ExecCredential", False)
    assert info["spec"].get("cluster") == (
        {
            "server": HTTP["server"],
            "tls-server-name": "n",
            "certificate-authority-data": base64.b64encode(b"an authority").decode(),
            "config": {"audience": "a"},
        }
        if told
        else None
    )


def test_a_plugin_that_must_ask_needs_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    file = with_plugin(tmp_path, credential(token="t"), interactiveMode="Always")
    with pytest.raises(KubeConfigError, match=r"interactiveMode Always, and standard input is no terminal; use"):
        access(file)
    file = with_plugin(tmp_path, credential(token="t"), interactiveMode="IfAvailable")
    assert access(file).headers == (("Authorization", "Bearer t"),)


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
        (credential(token="t", expirationTimestamp="2000-01-01T00:00:00"), "printed no ExecCredential: "),
        (credential(), "gave neither a token nor a certificate with its key"),
        (credential(clientCertificateData="x"), "gave neither a token nor a certificate with its key"),
    ],
)
def test_plugins_that_fail(tmp_path: Path, script: str, message: str) -> None:
    file = with_plugin(tmp_path, script)
    with pytest.raises(KubeConfigError) as caught:
        access(file)
    assert str(caught.value).startswith(f"{file}: user 'c': exec plugin './plugin' {message}")


def test_a_plugin_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.kube.plugins.TIMEOUT_SECONDS", 1.0)
    file = with_plugin(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 600")
    with pytest.raises(KubeConfigError, match=r"exec plugin './plugin' did not end within 1 s"):
        access(file)
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
