"""Keeps the accounts of consolidation commands, and reports each when it is closed (ADR-0038)."""

import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from dovetail.api import names, objects
from dovetail.api.names import EventReason
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.passes import PassController
from dovetail.controllers.base.writing import about_pool, publish, warn
from dovetail.controllers.disruption.disrupted_marks import is_going
from dovetail.model.pod_records import PodRecord
from dovetail.observe.disruption_metrics import DisruptionMetrics
from dovetail.planning.disruption.accounts import AccountTotals, CommandAccount, ConsolidationAccounts, record_size
from dovetail.planning.disruption.commands import Command
from dovetail.planning.disruption.records import record_on
from dovetail.planning.disruption.savings_backoff import SavingsBackoff
from dovetail.rules.states import BESIDE_DISRUPTED, has_disrupted_taint
from dovetail.runtime.manager import Context
from dovetail.scheduling.placement import PodInfo, price_text
from dovetail.state.instance_types import BILLION, bought_as
from dovetail.state.store import Added, Change, Deleted, InFlight, Updated

log = logging.getLogger(__name__)

KEPT: Final = 200  # closed accounts, for people
_HOURS_KEPT: Final = 25
_UNSEEN: Final = timedelta(seconds=5)  # until a write of ours is looked for again


class DisruptionAccounts(PassController):
    """Follows pods and NodeClaims, and closes accounts when they are due. Nothing is polled."""

    name = "disruption.accounts"

    def __init__(self, cluster: WatchedCluster, metrics: DisruptionMetrics) -> None:
        super().__init__()
        self._cluster = cluster
        self._metrics = metrics
        self._accounts = ConsolidationAccounts()
        self._look_at: datetime | None = None  # when the claims of open accounts are looked at
        self.closed: deque[CommandAccount] = deque(maxlen=KEPT)
        self.totals = AccountTotals()
        self._moved: deque[tuple[datetime, int]] = deque(maxlen=_HOURS_KEPT)  # pods, by the full hour
        cluster.pods.subscribe(self._pod_changed)
        cluster.claims.subscribe(self._claim_changed)
        cluster.pools.subscribe(self._pool_changed)

    def started(self, command: Command, now: datetime) -> None:
        """A command was started, and its record is written."""
        self._accounts.start(command, now)
        self._look(now)

    def launched(self, claim: str, pods: Sequence[PodInfo]) -> None:
        """The provisioner has created a NodeClaim for these pods."""
        self._accounts.launched(claim, pods)

    def backoffs(self, now: datetime) -> dict[str, SavingsBackoff]:
        """By pool."""
        return self._accounts.backoffs.active(now)

    def moved_since(self, at: datetime) -> int:
        """The pods of accounts that were closed after the instant, by full hours; at most the last day."""
        return sum(moved for hour, moved in self._moved if hour >= at)

    # -- what happens --------------------------------------------------------------------------------------------------

    def _pod_changed(self, change: Change[PodRecord]) -> None:
        if self.context is None:
            return
        old = change.old.value if isinstance(change, Updated | Deleted) else None
        new = change.new.value if isinstance(change, Added | Updated) else None
        if old is not None and new is not None and old.uid != new.uid:  # the watch was interrupted
            self._pod_became(old, None)
            old = None
        self._pod_became(old, new)

    def _pod_became(self, old: PodRecord | None, new: PodRecord | None) -> None:
        now, accounts = self._cluster.clock.now(), self._accounts
        if old is None and new is not None and new.active:
            accounts.pod_added(new, now)
        if new is not None and new.active:
            if new.node_name and not (old is not None and old.node_name):
                accounts.pod_bound(new, self._pool_of(self._cluster.nodes.value(new.node_name)))
        elif old is not None and old.active:
            node = self._cluster.nodes.value(old.node_name)
            accounts.pod_left(new or old, self._pool_of(node), now, disrupted=self._is_disrupted(node))

    def _pool_of(self, node: objects.Node | None) -> str:
        return "" if node is None else node.metadata.labels.get(names.NODEPOOL_LABEL, "")

    def _is_disrupted(self, node: objects.Node | None) -> bool:
        """Pods also have successors if their node is gone without a word."""
        if node is None or node.metadata.deletion_timestamp is not None:
            return True
        return has_disrupted_taint(node) or has_disrupted_taint(node, BESIDE_DISRUPTED)

    def _claim_changed(self, change: Change[objects.NodeClaim]) -> None:
        if self.context is None:
            return
        if isinstance(change, Deleted):
            self._accounts.claim_gone(change.key[1], self._cluster.clock.now())
            self.wake()
        elif isinstance(change, Added | Updated):
            self._claim_seen(change.new.value)

    def _claim_seen(self, claim: objects.NodeClaim) -> None:
        name, labels = claim.metadata.name, claim.metadata.labels
        self._accounts.replacement_seen(name, claim.metadata.annotations.get(names.REPLACEMENT_OF, ""))
        if self._accounts.lacks_price(name):
            prices = self._cluster.instance_types.of(labels.get(names.NODEPOOL_LABEL, "")).prices
            self._accounts.price_seen(name, prices.get(bought_as(labels)))
            self._look(self._cluster.clock.now())
        if self._accounts.is_standing(name):
            self._look(self._cluster.clock.now())

    def _pool_changed(self, change: Change[objects.NodePool]) -> None:
        if isinstance(change, Deleted):
            self._accounts.backoffs.forget(change.key[1])
            for gauge in (self._metrics.savings_promised, self._metrics.savings_realised, self._metrics.backoff_ends):
                with suppress(KeyError):  # it was never set
                    gauge.remove(change.key[1])

    def _look(self, at: datetime) -> None:
        self._look_at = at if self._look_at is None else min(self._look_at, at)
        self.wake()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def begin(self, context: Context) -> None:
        self._look_at = context.clock.now()

    def due(self, now: datetime) -> datetime | None:  # noqa: ARG002
        return min(filter(None, (self._look_at, self._accounts.next_close_at)), default=None)

    async def make_pass(self, context: Context, now: datetime) -> None:
        self._look_at = None
        for claim, command in self._accounts.standing:
            self._settle(claim, command, now)
        closed, backoffs = self._accounts.settle(now, self._pool_size)
        for account in closed:
            self._report(context, account)
        for pool, backoff in backoffs.items():
            self._report_backoff(context, pool, backoff)

    def _settle(self, name: str, command: str, now: datetime) -> None:
        """Tells the account if the claim is gone, or if it is no longer in the command."""
        try:
            claim = self._cluster.claims.get_consistent(name)
        except InFlight:
            self._look_at = now + _UNSEEN
            return
        if claim is None:
            self._accounts.claim_gone(name, now)
            return
        record = record_on(claim)
        if (record is None or record.id != command) and not is_going(self._cluster, claim):
            self._accounts.claim_stays(name, now)

    def _pool_size(self, pool: str) -> float:
        nodes = (node for claim in self._cluster.claims_in[pool] for node in self._cluster.node_names(claim))
        pods = (pod for node in nodes for pod in self._cluster.pods_on[node])
        return sum(record_size(pod) for pod in pods if pod.reschedulable)

    # -- reports -------------------------------------------------------------------------------------------------------

    def _report(self, context: Context, account: CommandAccount) -> None:
        self.closed.append(account)
        hour = context.clock.now().replace(minute=0, second=0, microsecond=0)
        before = self._moved.pop()[1] if self._moved and self._moved[-1][0] == hour else 0
        self._moved.append((hour, before + account.moved))
        self.totals = self.totals.plus(account)
        self._measure(account)
        log.info("consolidation finished", extra=account_fields(account))
        for name in account.pools:
            if (pool := self._cluster.pools.value(name)) is not None:
                about, note = about_pool(pool), f"{account.reason}/{account.id} {account}"
                publish(context.recorder, about, EventReason.CONSOLIDATION_FINISHED, note, about.uid, account.id)

    def _report_backoff(self, context: Context, name: str, backoff: SavingsBackoff) -> None:
        self._metrics.backoff_ends.labels(name).set_function(partial(self._backoff_end, name))
        log.info("consolidation backs off", extra={"NodePool": name, "why": str(backoff)})
        if (pool := self._cluster.pools.value(name)) is not None:
            about, note = about_pool(pool), f"No pods are moved for consolidation: {backoff}"
            warn(context.recorder, about, EventReason.CONSOLIDATION_BACKOFF, note, about.uid, str(backoff.times))

    def _backoff_end(self, pool: str) -> float:
        backoff = self.backoffs(self._cluster.clock.now()).get(pool)
        return 0.0 if backoff is None else backoff.until.timestamp()

    def _measure(self, account: CommandAccount) -> None:
        metrics = self._metrics
        promised = 0 if account.is_given_up else account.promised
        for pool, part in account.pools.items():
            metrics.savings_promised.labels(pool).inc(promised * part.share / BILLION)
            metrics.savings_realised.labels(pool).inc(account.realised * part.share / BILLION)
            metrics.pods_moved.labels(pool).inc(part.moved)
            metrics.pods_moved_again.labels(pool).inc(part.moved_again)
            metrics.pods_moved_in_vain.labels(pool).inc(0 if account.is_kept else part.moved)
        for name in account.unplanned:
            claim = self._cluster.claims.value(name)
            pool = "" if claim is None else claim.metadata.labels.get(names.NODEPOOL_LABEL, "")
            metrics.unplanned_nodes.labels(pool).inc()


def account_fields(account: CommandAccount) -> dict[str, object]:
    """The account, for the log and for scripts."""
    return {
        "command-id": account.id,
        "promised": price_text(account.promised),
        "realised": price_text(account.realised),
        "pods-moved": account.moved,
        "pods-moved-again": account.moved_again,
        "pods-moved-in-vain": account.moved_in_vain,
        "unplanned-nodes": list(account.unplanned),
    }
