"""Whatever stands in a kubeconfig: it is used, or one line says what is wrong, and nothing else is raised."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kube import KubeConfigError
from dovetail.kube.access import load
from dovetail.kube.kubeconfig import Cluster, ExecConfig, User

API = "client.authentication.k8s.io/v1"


def fields(type_: type, good: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some fields of the type, each with a value that is good or not."""
    values = {name: st.one_of(st.just(good[name]), ANYTHING) if name in good else ANYTHING for name in encoded(type_)}
    return st.fixed_dictionaries({}, optional=values)


def encoded(type_: Any) -> tuple[str, ...]:
    return tuple(type_.__struct_encode_fields__)


TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
LEAF = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.dates(), st.binary(max_size=4), TEXT)
ANYTHING = st.recursive(
    LEAF, lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(TEXT, inner, max_size=2)), max_leaves=4
)
CLUSTERS = fields(Cluster, {"server": "https://a", "insecure-skip-tls-verify": True, "proxy-url": "http://p"})
# No random commands, for they would be run.
PLUGINS = st.builds(
    lambda plugin, command: {**plugin, "command": command},
    fields(ExecConfig, {"apiVersion": API, "provideClusterInfo": True}),
    st.sampled_from(["echo", "./none", "", None, 5]),
)
USERS = st.builds(
    lambda user, plugin: {**user, "exec": plugin},
    fields(User, {"as": "a", "token": "t", "username": "u"}),
    st.one_of(st.none(), LEAF, PLUGINS),
)


def check(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "k"
        file.write_bytes(content)
        try:
            asyncio.run(load(str(file)))
            said = f"{file}: nothing"
        except KubeConfigError as error:
            said = str(error)
        assert said.startswith(f"{file}: ")
        assert said.isprintable()


@given(CLUSTERS, USERS)
def test_any_value_in_any_field(cluster: dict[str, Any], user: dict[str, Any]) -> None:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://a"} | cluster}],
        "users": [{"name": "c", "user": user}],
    }
    check(yaml.safe_dump(config).encode())


@given(
    st.one_of(st.binary(), ANYTHING.map(lambda value: yaml.safe_dump({"contexts": value, "clusters": value}).encode()))
)
def test_any_file(content: bytes) -> None:
    check(content)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b"&a [*a]",
        b"current-context: c\ncontexts: &a [*a]\n",
        b"""
current-context: c
contexts: [{name: c, context: {cluster: c, user: c}}]
clusters:
- name: c
  cluster: {server: 'http://a', extensions: [{name: client.authentication.k8s.io/exec, extension: &a [*a]}]}
users: [{name: c, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: echo, provideClusterInfo: true}}}]
""",
        b"""
current-context: c
contexts: [{name: c, context: {cluster: c, user: c}}]
clusters: [{name: c, cluster: {server: 'http://a'}}]
users: [{name: c, user: {tokenFile: "a\\0b"}}]
""",
        b"""
current-context: c
contexts: [{name: c, context: {cluster: c, user: c}}]
clusters: [{name: c, cluster: {server: 'http://a'}}]
users: [{name: c, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: "a\\0b"}}}]
""",
    ],
)
def test_content_that_no_honest_file_has(content: bytes) -> None:
    check(content)
