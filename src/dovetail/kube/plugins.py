"""What credentials does an exec plugin give?

The official package runs plugins too, but hides their failures, lets them hang and loses their expiry.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from dovetail.kube.kubeconfig import KubeConfigError
from dovetail.values.foreign_text import plain

TIMEOUT_SECONDS = 60.0
INTERACTIVE_TIMEOUT_SECONDS = 300.0  # somebody types a code into a browser


class Credential(msgspec.Struct, frozen=True, rename="camel"):
    """What a plugin answers: a token, a certificate, or both."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    status: Credential | None = None


async def run_plugin(config: Mapping[str, Any], cluster: Mapping[str, Any], folder: Path, source: str) -> Credential:
    """Run the plugin of a kubeconfig's user; raises KubeConfigError."""
    command = config.get("command")
    if not isinstance(command, str) or not command:
        raise KubeConfigError(f"{source}: exec plugin without a command")
    where = f"{source}: exec plugin {command!r}"
    if os.sep in command:  # as kubectl: a path is relative to the file, a bare name is sought in PATH
        command = str(folder / command)
    terminal = sys.stdin is not None and sys.stdin.isatty() and config.get("interactiveMode") != "Never"
    output = await _output(
        [command, *map(str, config.get("args") or [])], _environment(config, cluster, terminal), terminal, where
    )
    try:
        answer = msgspec.json.decode(output, type=_ExecCredential)
    except msgspec.MsgspecError as error:
        raise KubeConfigError(f"{where} printed no ExecCredential: {error}") from None
    if answer.kind != "ExecCredential" or answer.api_version != config.get("apiVersion"):
        wanted = f"ExecCredential of {config.get('apiVersion')}"
        raise KubeConfigError(f"{where} printed {answer.kind} of {answer.api_version}, not {wanted}")
    status = answer.status or Credential()
    if not status.token and not (status.client_certificate_data and status.client_key_data):
        raise KubeConfigError(f"{where} gave neither a token nor a certificate with its key")
    return status


async def _output(command: list[str], environment: dict[str, str], terminal: bool, where: str) -> bytes:
    timeout_seconds = INTERACTIVE_TIMEOUT_SECONDS if terminal else TIMEOUT_SECONDS
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            stdin=None if terminal else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=None if terminal else asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise KubeConfigError(f"{where} cannot be run: {error.strerror}") from None
    try:
        async with asyncio.timeout(timeout_seconds):
            output, errors = await process.communicate()
    except TimeoutError:
        raise KubeConfigError(f"{where} did not end within {timeout_seconds:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    if process.returncode != 0:
        words = plain(" ".join((errors or b"").decode(errors="replace").split()))[:300]
        raise KubeConfigError(f"{where} failed with code {process.returncode}" + (f": {words}" if words else ""))
    return output


def _environment(config: Mapping[str, Any], cluster: Mapping[str, Any], terminal: bool) -> dict[str, str]:
    spec: dict[str, Any] = {"interactive": terminal}
    if config.get("provideClusterInfo"):
        known = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
        spec["cluster"] = {key: cluster[key] for key in known if key in cluster}
    info = {"apiVersion": config.get("apiVersion"), "kind": "ExecCredential", "spec": spec}
    added = {str(item["name"]): str(item["value"]) for item in config.get("env") or []}
    return {**os.environ, **added, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
