"""Who may read `/debug/*` of a running controller, and what are they told?

`dovetail run` is put together as in production and serves on loopback; the API server stands in.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import pytest

from dovetail.cli.run.assembly import Program, program, serving_all
from dovetail.cli.run.process import asks_for_tokens
from dovetail.controllers.disruption.engine import PastDecision
from dovetail.model.refs import Ref
from dovetail.planning.disruption.board import Candidate, Method
from dovetail.planning.disruption.commands import BudgetUse, Command, PodDestination
from dovetail.planning.disruption.validation import Rejection, RejectionCause
from dovetail.scheduling.fast.witness import Shortage
from dovetail.scheduling.placement import NewClaim
from dovetail.scheduling.requirements import Requirements
from dovetail.scheduling.resources import Resources
from tests.attack.api_server import ApiServer
from tests.harness.ports import free_port
from tests.harness.stage import PARAMETER, gives, stage
from tests.unit.cli.test_run import told

DEBUG: Final = ("/debug/decisions", "/debug/pprof/tasks", "/debug/pprof/profile?seconds=0.01")
LISTENERS: Final = ("metrics", "dashboard")

HIDDEN_NAMES: Final = ("payroll", "ledger-0")  # a namespace and a pod that only some readers may list
WITNESS: Final = "2 pods like payroll/ledger-0 need 1 cpu each; they fit on no other node"
WITNESS_PARTS: Final = Shortage(
    needed=2, there=0, like=Ref("Pod", "payroll", "ledger-0"), each=Resources({"cpu": 1000})
).sentence
REDACTED: Final = "2 pods like a pod in a namespace that you may not list need 1 cpu each; they fit on no other node"
COMMAND: Final = Command(
    id="abc",
    at=datetime(2026, 3, 6, 12, tzinfo=UTC),
    method=Method.SINGLE_NODE,
    candidates=(Candidate(node="n1", claim="c1", claim_uid="u1", pool="general"),),
    replacements=(
        NewClaim(
            pool="general", pods=("pod-uid",), requirements=Requirements(), types=("small",), requests=Resources()
        ),
    ),
    landing={"pod-uid": PodDestination(replacement=1)},
    budgets={"general": BudgetUse(limit=2, allowed=1, takes=1)},
)
REJECTED: Final = Rejection(cause=RejectionCause.SCHEDULING, message=WITNESS_PARTS, nodes=("n1",))

Answer = tuple[int, str]


class Controller:
    """A running program, its ports, and a client that asks."""

    def __init__(self, made: Program, ports: dict[str, int], session: aiohttp.ClientSession) -> None:
        self.made = made
        self.ports = ports
        self._session = session

    async def get(self, listener: str, path: str, *, token: str = "", **headers: str) -> Answer:
        bearer = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"http://127.0.0.1:{self.ports[listener]}{path}"
        async with self._session.get(url, headers=headers | bearer) as response:
            if response.status == 401:
                assert response.headers["WWW-Authenticate"] == "Bearer"
            return response.status, await response.text()

    async def decisions(self, **asked: str) -> dict[str, Any]:
        status, text = await self.get("metrics", "/debug/decisions", **asked)
        assert status == 200
        found: dict[str, Any] = msgspec.json.decode(text)
        return found


def may_list(user: str, resource: str, namespace: str) -> bool:
    """`admin` everything; `tenant` pods of one namespace only; `scraper` no NodePools, and so nothing."""
    if user == "tenant" and resource == "pods":
        return namespace == "shop"
    return user != "scraper" or resource != "nodepools"


@asynccontextmanager
async def controller(folder: Path, *, dashboard: bool) -> AsyncIterator[Controller]:
    """It has decided something, and left a node alone because of a pod."""
    server = ApiServer()
    server.answering.set()
    server.known_tokens |= {"admin", "tenant", "scraper"}
    server.may_list = may_list
    ports = {"metrics": free_port(), "probes": free_port(), **({"dashboard": free_port()} if dashboard else {})}
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(server.serving())
        environment = stack.enter_context(pytest.MonkeyPatch.context())
        environment.setenv("KUBECONFIG", str(server.kubeconfig(folder)))
        options = told(
            "--metrics-bind-address=127.0.0.1",
            f"--metrics-port={ports['metrics']}",
            f"--health-probe-port={ports['probes']}",
            f"--dashboard-port={ports.get('dashboard', 0)}",
            "--enable-profiling",
        )
        made = await stack.enter_async_context(program(options))
        await stack.enter_async_context(serving_all(options, made))
        made.disruption.history.extend(
            [PastDecision(command=COMMAND), PastDecision(command=COMMAND, rejected=REJECTED)]
        )
        made.disruption.left_alone = {"n2": WITNESS_PARTS}
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield Controller(made, ports, session)


@pytest.fixture
def in_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")


@pytest.fixture
def on_a_laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@gives("running")
def asked(
    questions: Callable[[Controller], Coroutine[Any, Any, None]], *, tmp_path: Path, dashboard: bool = False
) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), controller(tmp_path, dashboard=dashboard) as running:
            await questions(running)

    asyncio.run(main())


pytestmark = stage(asked, tmp_path=PARAMETER)


# -- in a pod ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("in_pod")
@pytest.mark.parametrize("dashboard", [True, False])
@stage(dashboard=PARAMETER)
async def test_in_a_pod_debug_asks_for_a_token_and_its_rights(running: Controller, dashboard: bool) -> None:
    for listener in LISTENERS if dashboard else ("metrics",):
        for path in DEBUG:
            found = {
                token: (await running.get(listener, path, token=token))[0]
                for token in ("", "unknown", "scraper", "tenant", "admin")
            }
            assert found == {"": 401, "unknown": 401, "scraper": 403, "tenant": 200, "admin": 200}, (listener, path)


@pytest.mark.usefixtures("in_pod")
async def test_a_refusal_tells_nothing(running: Controller) -> None:
    for token in ("", "unknown", "scraper"):
        _, text = await running.get("metrics", "/debug/decisions", token=token)
        assert not any(word in text for word in ("n1", "n2", "abc", *HIDDEN_NAMES))


@pytest.mark.usefixtures("in_pod")
async def test_metrics_and_probes_ask_for_no_token(running: Controller) -> None:
    assert (await running.get("metrics", "/metrics", Host="10.0.0.7"))[0] == 200
    assert (await running.get("probes", "/readyz/readyz", Host="10.0.0.7"))[0] == 200


@pytest.mark.usefixtures("in_pod")
async def test_whoever_may_list_all_pods_is_told_everything(running: Controller) -> None:
    found = await running.decisions(token="admin")
    assert found["leftAlone"] == {"n2": WITNESS}
    rejected, started = found["commands"]
    assert rejected["rejected"] == {"cause": RejectionCause.SCHEDULING, "message": WITNESS}
    assert started["landing"] == {"pod-uid": "replacement 1"}
    assert "restricted" not in found


@pytest.mark.usefixtures("in_pod")
@pytest.mark.parametrize("listener", LISTENERS)
@stage(dashboard=True)
async def test_whoever_may_not_list_all_pods_reads_sentences_without_pods(running: Controller, listener: str) -> None:
    for path in DEBUG:
        _, text = await running.get(listener, path, token="tenant")
        assert not any(word in text for word in (*HIDDEN_NAMES, "pod-uid")), path
    _, text = await running.get(listener, "/debug/decisions", token="tenant")
    found = msgspec.json.decode(text)
    assert found["restricted"] is True
    assert found["leftAlone"] == {"n2": REDACTED}
    rejected, started = found["commands"]
    assert rejected["rejected"] == {"cause": RejectionCause.SCHEDULING, "message": REDACTED}
    assert started["command"].startswith("Underutilized/abc: replace: nodepools=[general]: [n1]")
    assert started["reason"] == "Underutilized"
    assert started["disrupted-nodes"][0]["Node"] == "n1"
    assert started["replacement-nodes"] == [{"NodePool": "general", "instance-types": ["small"], "pods": 1}]
    assert started["budgets"] == {"general": {"limit": 2, "allowed": 1, "takes": 1}}


@pytest.mark.usefixtures("in_pod")
@stage(dashboard=True)
async def test_the_board_says_why_a_command_was_rejected_without_pods(running: Controller) -> None:
    status, text = await running.get("dashboard", "/api/board", token="tenant")
    assert status == 200
    assert f'"rejected":"scheduling: {REDACTED}"' in text
    assert not any(word in text for word in HIDDEN_NAMES)
    assert WITNESS in (await running.get("dashboard", "/api/board", token="admin"))[1]


# -- outside a pod ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("on_a_laptop")
@stage(dashboard=True)
async def test_on_loopback_no_token_is_needed_but_other_sites_and_names_are_refused(running: Controller) -> None:
    for listener in LISTENERS:
        for path in DEBUG:
            assert (await running.get(listener, path))[0] == 200
            assert (await running.get(listener, path, Host="localhost:1"))[0] == 200
            assert (await running.get(listener, path, Host="rebound.example"))[0] == 403
            assert (await running.get(listener, path, **{"Sec-Fetch-Site": "cross-site"}))[0] == 403
    assert (await running.get("metrics", "/metrics", Host="prometheus.example"))[0] == 200
    assert (await running.decisions())["leftAlone"] == {"n2": WITNESS}


@pytest.mark.parametrize(
    ("address", "in_a_pod", "expected"),
    [
        ("127.0.0.1", False, False),
        ("::1", False, False),
        ("localhost", False, False),
        ("0.0.0.0", False, True),
        ("::", False, True),
        ("10.0.0.7", False, True),
        (None, False, True),
        ("127.0.0.1", True, True),
        (None, True, True),
    ],
)
def test_a_listener_asks_for_tokens_wherever_others_can_reach_it(
    monkeypatch: pytest.MonkeyPatch,
    address: str | None,
    in_a_pod: bool,
    expected: bool,
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1" if in_a_pod else "")
    assert asks_for_tokens(told(), address) is expected
