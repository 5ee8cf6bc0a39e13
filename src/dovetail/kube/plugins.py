"""Runs exec credential plugins."""

import asyncio
import base64
import os
import sys
from datetime import datetime
from typing import Annotated, Any

import msgspec

from dovetail.kube.kubeconfig import Cluster, ExecConfig, Section, User
from dovetail.values.foreign_text import plain

TIMEOUT_SECONDS = 60.0
INTERACTIVE_TIMEOUT_SECONDS = 300.0  # time to type a code into a browser
GROUP = "client.authentication.k8s.io"


class Credential(msgspec.Struct, frozen=True, rename="camel"):
    """The credentials from a plugin: a token, a certificate, or both."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    status: Credential | None = None


async def run_plugin(plugin: ExecConfig, user: Section[User], cluster: Section[Cluster]) -> Credential:
    """Run the plugin of a kubeconfig's user; raises KubeConfigError."""
    if not plugin.command:
        raise user.wrong("exec plugin without a command")
    name = f"exec plugin {plugin.command!r}"
    if not plugin.api_version or not plugin.api_version.startswith(f"{GROUP}/"):
        raise user.wrong(f"{name} has apiVersion {plugin.api_version!r}; write {GROUP}/v1 or {GROUP}/v1beta1")
    terminal = sys.stdin is not None and sys.stdin.isatty() and plugin.interactive_mode != "Never"
    if plugin.interactive_mode == "Always" and not terminal:
        raise user.wrong(f"{name} has interactiveMode Always, and standard input is no terminal; use IfAvailable")
    output = await _output(plugin, _environment(plugin, cluster, terminal), terminal, user)
    try:
        answer = msgspec.json.decode(output, type=_ExecCredential)
    except msgspec.MsgspecError as error:
        raise user.wrong(f"{name} printed no ExecCredential: {error}") from None
    if answer.kind != "ExecCredential" or answer.api_version != plugin.api_version:
        wanted = f"ExecCredential of {plugin.api_version}"
        raise user.wrong(f"{name} printed {answer.kind} of {answer.api_version}, not {wanted}")
    status = answer.status or Credential()
    if not status.token and not (status.client_certificate_data and status.client_key_data):
        raise user.wrong(f"{name} gave neither a token nor a certificate with its key")
    return status


async def _output(plugin: ExecConfig, environment: dict[str, str], terminal: bool, user: Section[User]) -> bytes:
    command = str(plugin.command)
    name = f"exec plugin {command!r}"
    if os.sep in command:  # as kubectl: a path is relative to the file, a bare name is sought in PATH
        command = str(user.folder / command)
    timeout_seconds = INTERACTIVE_TIMEOUT_SECONDS if terminal else TIMEOUT_SECONDS
    try:
        process = await asyncio.create_subprocess_exec(
            command,
            *(plugin.args or ()),
            env=environment,
            stdin=None if terminal else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=None if terminal else asyncio.subprocess.PIPE,
        )
    except (OSError, ValueError) as error:  # ValueError: a zero byte, or "=" in the name of a variable
        hint = f"; {' '.join(plugin.install_hint.split())}" if plugin.install_hint else ""
        raise user.wrong(f"{name} cannot be run: {getattr(error, 'strerror', error)}{hint}") from None
    try:
        async with asyncio.timeout(timeout_seconds):
            output, errors = await process.communicate()
    except TimeoutError:
        raise user.wrong(f"{name} did not end within {timeout_seconds:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    if process.returncode != 0:
        words = plain(" ".join((errors or b"").decode(errors="replace").split()))[:300]
        raise user.wrong(f"{name} failed with code {process.returncode}" + (f": {words}" if words else ""))
    return output


def _environment(plugin: ExecConfig, cluster: Section[Cluster], terminal: bool) -> dict[str, str]:
    spec: dict[str, Any] = {"interactive": terminal}
    if plugin.provide_cluster_info:
        target = cluster.value
        cluster_info = {
            "server": target.server,
            "tls-server-name": target.tls_server_name,
            "insecure-skip-tls-verify": target.insecure_skip_tls_verify,
            "certificate-authority-data": base64.b64encode(cluster.content("certificate-authority")).decode(),
            "proxy-url": target.proxy_url,
            "disable-compression": target.disable_compression,
            "config": next((item.extension for item in target.extensions or () if item.name == f"{GROUP}/exec"), None),
        }
        spec["cluster"] = {key: value for key, value in cluster_info.items() if value}
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    added = {variable.name: variable.value for variable in plugin.env or ()}
    return {**os.environ, **added, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
