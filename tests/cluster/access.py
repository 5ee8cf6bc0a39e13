"""How do tests reach a control plane? With its kubeconfig, or with plain requests of the standard library."""

import base64
import csv
import http.client
import json
import ssl
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from dovetail.api.crds import load_crds

ADMIN: Final = "admin"
POLL_SECONDS: Final = 0.05
PATCHES: Final = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class Answer(NamedTuple):
    """What the server said; `body` is its JSON, or its text under `text`."""

    status: int
    body: dict[str, Any]


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, what: str, answer: Answer) -> None:
        super().__init__(f"{what}: {answer.status} {answer.body.get('message', answer.body)}")
        self.answer = answer


class Cluster:
    """A control plane that was started in this folder, by us or by another process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def url(self) -> str:
        """Where the API server listens."""
        return (self.folder / "url").read_text()

    @property
    def ca_file(self) -> Path:
        """The authority that signed the API server's certificate."""
        return self.folder / "ca.crt"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.kubeconfig_of(ADMIN)

    @property
    def token(self) -> str:
        """The administrator's."""
        return self.token_of(ADMIN)

    def kubeconfig_of(self, user: str) -> Path:
        return self.folder / f"{user}.kubeconfig"

    def token_of(self, user: str) -> str:
        return self._tokens[user]

    def log_of(self, component: str) -> Path:
        return self.folder / f"{component}.log"

    @cached_property
    def _tokens(self) -> dict[str, str]:
        with (self.folder / "tokens.csv").open(newline="") as file:
            return {user: token for token, user, *_ in csv.reader(file)}

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca_file))

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        content_type: str | None = None,
        timeout_seconds: float = 30,
    ) -> Answer:
        """One request on a connection of its own, as the administrator unless told; raises OSError if it fails."""
        headers = {"Authorization": f"Bearer {token or self.token}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type or "application/json"
        place = urlsplit(self.url)
        connection = http.client.HTTPSConnection(
            place.hostname or "", place.port, context=self._tls, timeout=timeout_seconds
        )
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        if response.headers.get_content_type() == "application/json":
            return Answer(response.status, json.loads(content))
        return Answer(response.status, {"text": content.decode()})

    def get(self, path: str) -> dict[str, Any]:
        """The object or list; raises Refused."""
        return self._must("GET", path)

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The object as created in the collection; raises Refused."""
        return self._must("POST", path, body)

    def patch(self, path: str, body: Any, *, kind: str = "merge") -> dict[str, Any]:
        """The object as patched; raises Refused."""
        return self._must("PATCH", path, body, content_type=PATCHES[kind])

    def delete(self, path: str, **options: Any) -> dict[str, Any]:
        """What the server answered; `options` are those of DeleteOptions; raises Refused."""
        return self._must("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions"} | options)

    def _must(self, method: str, path: str, body: Any = None, *, content_type: str | None = None) -> dict[str, Any]:
        answer = self.request(method, path, body, content_type=content_type)
        if answer.status >= 400:
            raise Refused(f"{method} {path}", answer)
        return answer.body

    def wait(self, path: str, until: Callable[[dict[str, Any]], bool], *, seconds: float = 20) -> dict[str, Any]:
        """The object or list once it is as wished; raises TimeoutError."""
        answer = Answer(0, {})

        def is_so() -> bool:
            nonlocal answer
            answer = self.request("GET", path)
            return answer.status == 200 and until(answer.body)

        eventually(is_so, seconds=seconds, what=lambda: f"{path}: {answer.status} {json.dumps(answer.body)[:2000]}")
        return answer.body

    def wait_gone(self, path: str, *, seconds: float = 20) -> None:
        """Returns when there is no such object; raises TimeoutError."""
        eventually(lambda: self.request("GET", path).status == 404, seconds=seconds, what=lambda: f"{path} is there")

    def install_crds(self, definitions: Sequence[dict[str, Any]] = ()) -> None:
        """These definitions or else ours, ready to be used. May be called by many at once."""
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        definitions = definitions or load_crds()
        for crd in definitions:
            answer = self.request("POST", crds, crd)
            if answer.status not in (201, 409):
                raise Refused(crd["metadata"]["name"], answer)
        for crd in definitions:
            self.wait(f"{crds}/{crd['metadata']['name']}", lambda found: condition(found, "Established") == "True")
            spec = crd["spec"]
            version = spec["versions"][0]["name"]
            self.wait(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}", lambda _: True)


def condition(found: dict[str, Any], kind: str) -> str | None:
    """The status of one of the object's conditions."""
    conditions = found.get("status", {}).get("conditions") or []
    return next((each["status"] for each in conditions if each["type"] == kind), None)


def eventually(is_so: Callable[[], bool], *, seconds: float, what: Callable[[], str]) -> None:
    """Asks again and again until it is so; raises TimeoutError that says what is instead."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what()}")
        time.sleep(POLL_SECONDS)


def kubeconfig_text(url: str, ca_file: Path, token: str) -> str:
    """A kubeconfig with one context; JSON is YAML."""
    authority = base64.b64encode(ca_file.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "dovetail-test",
        "contexts": [{"name": "dovetail-test", "context": {"cluster": "dovetail-test", "user": "dovetail-test"}}],
        "clusters": [
            {"name": "dovetail-test", "cluster": {"server": url, "certificate-authority-data": authority}},
        ],
        "users": [{"name": "dovetail-test", "user": {"token": token}}],
    }
    return json.dumps(config, indent=2) + "\n"
