"""A process that wants to lead, and writes as long as it may: `python -m tests.cluster.leader_process …`.

While it leads it writes its epoch into a ConfigMap, without any precondition: nothing but the fence keeps it from
writing too late. It says what happens, a line each: `leading 3`, `wrote 17`, `refused`, `lost`.
"""

import asyncio
import signal
import sys
from contextlib import AsyncExitStack
from typing import Any, Final

from dovetail.kube.client import connect
from dovetail.kube.retrying import NO_PATIENCE
from dovetail.ports import Forbidden, Patch, Resource
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.lease import Election, FencedApi, LeaseLost

CONFIGMAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", dict[str, Any], namespaced=True)
FENCED: Final = "fenced"
LEASE: Final = "karpenter-leader-election"
WRITE_SECONDS: Final = 0.2
LOST: Final = 3


def say(*words: object) -> None:
    print(*words, flush=True)


async def main(kubeconfig: str, namespace: str, identity: str) -> int:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        lease_api = await stack.enter_async_context(connect(kubeconfig=kubeconfig, qps=None, patience=NO_PATIENCE))
        election = Election(lease_api, clock, namespace=namespace, name=LEASE, identity=identity)
        api = await stack.enter_async_context(connect(kubeconfig=kubeconfig, before_write=election.fence.check))
        fenced = FencedApi(api, election.fence)

        async def lead() -> None:
            say("leading", election.fence.epoch)
            count = 0
            while not stop.is_set():
                count += 1
                data = {"epoch": str(election.fence.epoch), "holder": identity, "count": str(count)}
                try:
                    await fenced.write(Patch(CONFIGMAPS, FENCED, {"data": data}, namespace=namespace))
                except Forbidden:
                    say("refused")
                else:
                    say("wrote", count)
                await clock.sleep(WRITE_SECONDS)

        try:
            await election.run(lead)
        except LeaseLost:
            say("lost")
            return LOST
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
