"""Does a drain end as it would have when the program, or the API server, dies in the middle of it (R24)?

Nothing but the objects is left then: deadlines, protections and budgets must be found there again, and nobody may go
before his time because somebody forgot.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import msgspec
import pytest

from dovetail.api import names
from dovetail.api.names import EventReason
from dovetail.kube.client import connect
from dovetail.ports import NODECLAIMS, PODS
from dovetail.runtime.pace import Backoff
from dovetail.runtime.reflector import ReflectorTimings
from dovetail.values.timestamp import format_time
from tests.cluster.plane import PATIENT, ControlPlane
from tests.cluster.termination.history import recording
from tests.cluster.termination.program import Program, running
from tests.cluster.termination.setting import AT_ONCE, GUARDED, LATE, Setting, quick
from tests.harness import manifests
from tests.harness.stage import real_time, stage

pytestmark = stage(real_time)

# A server that is back is noticed soon, so that tests need not wait.
REFLECTING = ReflectorTimings(backoff=Backoff(first_seconds=0.2, cap_seconds=1.0, jitter=0.5))


class Drain(msgspec.Struct, frozen=True):
    """A drain that has begun: one pod has gone, one goes at an instant, one is held by a budget, one by its owner."""

    setting: Setting
    program: Program
    node: str
    span_ends_at: datetime
    deadline: datetime

    @property
    def forced_at(self) -> datetime:
        return self.deadline - timedelta(seconds=10)

    def all_wait(self) -> bool:
        return self.setting.runs("span") and self.rest_waits()

    def rest_waits(self) -> bool:
        return self.setting.runs("held") and self.setting.runs("ever")

    async def ends(self) -> None:
        """Everything is gone, nobody was asked twice, and the deadline has always been the same."""
        setting = self.setting
        await setting.all_gone(self.node)
        for pod in ("free", "span", "held", "ever"):
            assert len(setting.history.asked(pod, setting.name)) == 1, pod
        versions = setting.history.versions(NODECLAIMS, setting.claim_name("c1"))
        stamps = {each.thing.metadata.annotations.get(names.TERMINATION_TIMESTAMP) for each in versions if each.thing}
        assert stamps == {None, format_time(self.deadline)}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane whose API server may be killed, and where no claims are but ours."""
    with ControlPlane(tmp_path_factory.mktemp("restarts") / "plane", flags=PATIENT) as plane:
        plane.install_crds()
        yield plane


@asynccontextmanager
async def draining(plane: ControlPlane, name: str, *, span: str, grace_period: str) -> AsyncIterator[Drain]:
    async with (
        connect(kubeconfig=str(plane.kubeconfig)) as api,
        recording(api) as history,
        running(plane, reflecting=REFLECTING) as program,
    ):
        setting = Setting(api, history, name)
        await setting.prepare()
        node = await setting.launch(terminationGracePeriod=grace_period)
        five, ten = {"terminationGracePeriodSeconds": 5}, {"terminationGracePeriodSeconds": 10}
        await setting.apply(manifests.pdb("held", minAvailable=1))
        await setting.bind(
            node,
            manifests.pod("free", annotations=quick(), **five),
            manifests.pod("span", annotations=quick(**{names.DO_NOT_DISRUPT: span}), **five),
            manifests.pod("held", annotations=quick(), **ten),
            manifests.pod("ever", annotations=quick(**GUARDED), **ten),
        )
        found = setting.pod("span")
        assert found is not None
        assert found.metadata.creation_timestamp is not None
        deleted_at = await setting.delete_claim()
        await setting.evicted("free", due=deleted_at, own=5, late=AT_ONCE)
        await setting.history.until(lambda: setting.pod("free") is None, "the first is gone")
        yield Drain(
            setting,
            program,
            node,
            span_ends_at=found.metadata.creation_timestamp + timedelta(seconds=int(span.removesuffix("s"))),
            deadline=deleted_at + timedelta(seconds=int(grace_period.removesuffix("s"))),
        )


async def test_the_program_is_killed_and_started_anew(plane: ControlPlane) -> None:
    """What is due while it runs is done at its instant; what came due while it did not, as soon as it runs again."""
    async with draining(plane, "program", span="20s", grace_period="50s") as drain:
        setting, history, program = drain.setting, drain.setting.history, drain.program
        for _ in range(3):
            await program.kill()
            assert drain.all_wait()
            await program.start()
        await setting.evicted("span", due=drain.span_ends_at, own=5)
        await program.kill()
        await history.reaches(drain.forced_at + timedelta(seconds=3))
        assert drain.rest_waits()
        await program.start()
        started_at = history.now().replace(microsecond=0)
        for pod in ("held", "ever"):
            late = started_at + LATE - drain.forced_at
            asked = await setting.forced(pod, due=drain.forced_at, deadline=drain.deadline, own=10, late=late)
            assert asked.grace_seconds <= 7
        await drain.ends()


async def test_a_protection_ends_while_the_program_is_down(plane: ControlPlane) -> None:
    async with draining(plane, "down", span="10s", grace_period="30s") as drain:
        setting, history, program = drain.setting, drain.setting.history, drain.program
        await program.kill()
        await history.reaches(drain.span_ends_at + timedelta(seconds=1))
        assert drain.all_wait()
        await program.start()
        late = history.now().replace(microsecond=0) + LATE - drain.span_ends_at
        await setting.evicted("span", due=drain.span_ends_at, own=5, late=late)
        # Nobody saw it end, so nobody tells (R3).
        assert history.events(EventReason.DO_NOT_DISRUPT_GRACE_PERIOD_ELAPSED, "span", setting.name) == []
        for pod in ("held", "ever"):
            await setting.forced(pod, due=drain.forced_at, deadline=drain.deadline, own=10)
        await drain.ends()


async def test_the_api_server_is_killed_and_started_anew(plane: ControlPlane) -> None:
    """A protection ends while it is down; later it is down for a moment, and the deadline is kept all the same."""
    async with draining(plane, "server", span="15s", grace_period="80s") as drain:
        setting, history = drain.setting, drain.setting.history
        await asyncio.to_thread(plane.kill, "kube-apiserver")
        await history.reaches(drain.span_ends_at + timedelta(seconds=1))
        await asyncio.to_thread(plane.start, "kube-apiserver")
        late = history.now().replace(microsecond=0) + AT_ONCE - drain.span_ends_at
        await setting.evicted("span", due=drain.span_ends_at, own=5, late=late)
        assert drain.rest_waits()

        await asyncio.to_thread(plane.restart, "kube-apiserver")
        await setting.annotate(PODS, "ever", {"example.com/seen": "true"})
        assert history.now() < drain.forced_at, "the machine is too busy for this test"
        await history.until(lambda: seen(setting, "ever"), "the history goes on")
        assert drain.rest_waits()
        for pod in ("held", "ever"):
            await setting.forced(pod, due=drain.forced_at, deadline=drain.deadline, own=10)
        await drain.ends()


def seen(setting: Setting, pod: str) -> bool:
    found = setting.pod(pod)
    return found is not None and "example.com/seen" in found.metadata.annotations
