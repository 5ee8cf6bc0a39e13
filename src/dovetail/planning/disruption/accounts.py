"""Compares what each consolidation command promised to save with what came of it (ADR-0038).

A command's account opens when the command starts, and closes `WATCHED` after its last node is gone or is to stay. The
command saves the prices of the nodes that it removed. It costs the prices of its replacements, and of nodes that were
launched for the pods that it moved although no command planned them. Pods that come from outside may take the room that
was meant for moved pods: up to their size they excuse such launches. The accounts are only in memory.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from dovetail.api.names import Reason
from dovetail.model.pod_records import Owner, PodRecord
from dovetail.planning.disruption.backoff import WATCHED, WorkloadKey, workload_key
from dovetail.planning.disruption.commands import Command
from dovetail.planning.disruption.savings_backoff import SavingsBackoff, SavingsBackoffs
from dovetail.rules.nodes import CONSOLIDATION
from dovetail.scheduling.placement import PodInfo, price_text
from dovetail.scheduling.resources import CPU, MEMORY, Resources
from dovetail.state.pod_sums import amounts_of

# A pod that is moved a second time within this time counts as moved again.
AGAIN_WITHIN: Final = timedelta(hours=1)
_MILLICORES_PER_CORE: Final = 1000
_BYTES_PER_CORE: Final = 4 * 2**30  # what a core usually comes with
_LEAST_SIZE: Final = 0.01  # pods without requests count as well


class PoolPart(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an account that is about the nodes of one pool. `share`: of their price in that of all nodes."""

    share: float
    moved: int
    moved_again: int


class CommandAccount(msgspec.Struct, frozen=True, kw_only=True):
    """The closed account of a command. Savings are in billionths per hour.

    `unplanned`: NodeClaims that were launched for pods of the command although no command planned them.
    """

    id: str
    reason: Reason
    at: datetime
    ended_at: datetime
    pools: Mapping[str, PoolPart]
    promised: int
    realised: int
    nodes: int
    unplanned: tuple[str, ...] = ()

    @property
    def is_given_up(self) -> bool:
        """Whether the command was rolled back before it did anything. Then its promise does not count."""
        return not self.nodes and not self.moved

    @property
    def is_kept(self) -> bool:
        """Whether at least half of the promised savings were realised."""
        return 2 * self.realised >= self.promised

    @property
    def moved(self) -> int:
        return sum(pool.moved for pool in self.pools.values())

    @property
    def moved_again(self) -> int:
        return sum(pool.moved_again for pool in self.pools.values())

    @property
    def moved_in_vain(self) -> int:
        return 0 if self.is_kept else self.moved

    def __str__(self) -> str:
        if self.is_given_up:
            return f"was given up; it promised to save ${price_text(self.promised)} an hour"
        saved = f"saved ${price_text(self.realised)} of the promised ${price_text(self.promised)} an hour"
        again = f", {self.moved_again} of them again within an hour" if self.moved_again else ""
        number = len(self.unplanned)
        launched = f"; {number} node{'s' if number > 1 else ''} launched for them that nobody planned" if number else ""
        gone = f"removed {self.nodes} node{'' if self.nodes == 1 else 's'}"
        return f"{saved}; {gone}; moved {self.moved} pod{'' if self.moved == 1 else 's'}{again}{launched}"


class AccountTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over closed accounts. Only `given_up` counts commands that were given up."""

    commands: int = 0
    given_up: int = 0
    promised: int = 0
    realised: int = 0
    moved: int = 0
    moved_again: int = 0
    moved_in_vain: int = 0
    unplanned: int = 0

    def plus(self, account: CommandAccount) -> "AccountTotals":
        return AccountTotals(
            commands=self.commands + (not account.is_given_up),
            given_up=self.given_up + account.is_given_up,
            promised=self.promised + (0 if account.is_given_up else account.promised),
            realised=self.realised + account.realised,
            moved=self.moved + account.moved,
            moved_again=self.moved_again + account.moved_again,
            moved_in_vain=self.moved_in_vain + account.moved_in_vain,
            unplanned=self.unplanned + len(account.unplanned),
        )


class _OpenAccount(msgspec.Struct, kw_only=True, eq=False):
    """The account of a command until it is closed."""

    command: Command
    started_at: datetime
    pods: frozenset[str]  # UIDs of the pods that the command is to move
    pools: frozenset[str]
    outside: float = 0.0  # the size of pods that came to its pools from outside
    standing: set[str]  # NodeClaims of the command that are neither gone nor staying
    removed: set[str] = msgspec.field(default_factory=set)
    charges: dict[str, float] = msgspec.field(default_factory=dict)  # by NodeClaim: the share of its price
    unplanned: set[str] = msgspec.field(default_factory=set)
    moved: Counter[str] = msgspec.field(default_factory=Counter)  # pods, by pool
    moved_again: Counter[str] = msgspec.field(default_factory=Counter)
    ended_at: datetime | None = None
    is_judged: bool = False

    def realised(self, prices: Mapping[str, int], removed: Collection[str]) -> int:
        """The savings if these NodeClaims of the command are removed. `prices`: of what is charged to it."""
        if self.command.savings is None:
            return 0
        saved = sum(candidate.price or 0 for candidate in self.command.candidates if candidate.claim in removed)
        return saved - sum(round(prices.get(claim, 0) * share) for claim, share in self.charges.items())

    def closed(self, ended_at: datetime, prices: Mapping[str, int]) -> CommandAccount:
        command = self.command
        by_pool = Counter[str]()
        for candidate in command.candidates:
            by_pool[candidate.pool] += max(1, candidate.price or 0)
        return CommandAccount(
            id=command.id,
            reason=command.reason,
            at=self.started_at,
            ended_at=ended_at,
            pools={
                pool: PoolPart(
                    share=price / by_pool.total(), moved=self.moved[pool], moved_again=self.moved_again[pool]
                )
                for pool, price in sorted(by_pool.items())
            },
            promised=command.savings or 0,
            realised=self.realised(prices, self.removed),
            nodes=len(self.removed),
            unplanned=tuple(sorted(self.unplanned)),
        )


class _MovedPod(NamedTuple):
    """A pod that left a disrupted node. `account`: of the command that moved it; None: consolidation did not.

    A pod of its workload that appears before `until` is its successor.
    """

    account: _OpenAccount | None
    moved_at: datetime
    until: datetime


class SettledAccounts(NamedTuple):
    """Closed accounts, and the back-offs of pools that begin."""

    closed: list[CommandAccount]
    backoffs: dict[str, SavingsBackoff]


class ConsolidationAccounts:
    """The open accounts, and the back-offs of pools that follow from the closed ones."""

    def __init__(self) -> None:
        self.backoffs = SavingsBackoffs()
        self._open: dict[str, _OpenAccount] = {}
        self._by_claim: dict[str, _OpenAccount] = {}  # the claims that the open commands remove
        self._by_node: dict[str, _OpenAccount] = {}
        self._prices: dict[str, int] = {}  # of the claims that are charged to open accounts
        self._awaited: dict[WorkloadKey, deque[_MovedPod]] = defaultdict(deque)  # successors that are to come
        self._successors: dict[str, _MovedPod] = {}  # by UID of the successor
        self._forgets_at: datetime | None = None

    def start(self, command: Command, now: datetime) -> None:
        """Opens the account of a consolidation command."""
        if command.reason not in CONSOLIDATION or command.id in self._open:
            return
        account = _OpenAccount(
            command=command,
            started_at=now,
            pods=frozenset(pod.uid for candidate in command.candidates for pod in candidate.pods),
            pools=frozenset(candidate.pool for candidate in command.candidates),
            standing={candidate.claim for candidate in command.candidates},
        )
        self._open[command.id] = account
        for candidate in command.candidates:
            self._by_claim[candidate.claim] = account
            self._by_node[candidate.node] = account

    # -- pods ----------------------------------------------------------------------------------------------------------

    def pod_added(self, pod: PodRecord, now: datetime) -> None:
        """A pod appears. It is the successor of the pod of its workload that was moved first, if there is one."""
        if not self._awaited or _stays_with_node(pod):
            return
        kind = workload_key(pod)
        if (waiting := self._awaited.get(kind)) is None:
            return
        while waiting:
            moved = waiting.popleft()
            if moved.until > now:
                self._successors[pod.uid] = moved
                break
        if not waiting:
            del self._awaited[kind]

    @property
    def awaited_successors(self) -> int:
        return sum(map(len, self._awaited.values()))

    def pod_bound(self, pod: PodRecord, pool: str) -> None:
        """A pod gets its node. If it is not a successor, it comes from outside."""
        if not _stays_with_node(pod) and pod.uid not in self._successors:
            self._outside(pod, pool, 1)

    def pod_left(self, pod: PodRecord, pool: str, now: datetime, *, disrupted: bool) -> None:
        """A pod ends, is deleted or evicted. `disrupted`: its node is leaving, so that the pod had to."""
        before = self._successors.pop(pod.uid, None)
        if not pod.node_name or _stays_with_node(pod):
            return
        if not disrupted or pod.terminal:
            self._outside(pod, pool, -1)
            return
        self._forget_old(now)
        account = self._by_node.get(pod.node_name)
        # The deletion timestamp of a pod includes its grace period.
        until = max(now, pod.deleted_at or now) + WATCHED
        self._awaited[workload_key(pod)].append(_MovedPod(account, now, until))
        if account is not None:
            account.moved[pool] += 1
            if before is not None and before.account is not None and now - before.moved_at <= AGAIN_WITHIN:
                account.moved_again[pool] += 1

    def _outside(self, pod: PodRecord, pool: str, step: int) -> None:
        accounts = [account for account in self._open.values() if pool in account.pools] if step > 0 else []
        if not accounts and not self.backoffs.follows(pool):
            return
        size = record_size(pod)
        for account in accounts:
            account.outside += size
        self.backoffs.outside_change(pool, workload_key(pod), step * size)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def launched(self, claim: str, pods: Iterable[PodInfo]) -> None:
        """A NodeClaim was created for these pods, and no command planned it."""
        sizes: dict[str, float] = defaultdict(float)
        whole = 0.0
        for pod in pods:
            size = request_size(pod.request)
            whole += size
            if (account := self._account_of(pod.uid)) is not None:
                sizes[account.command.id] += size
        for id_, size in sizes.items():
            account = self._open[id_]
            excused = min(size, account.outside)
            account.outside -= excused
            if excused < size:
                account.unplanned.add(claim)
                account.charges[claim] = (size - excused) / whole

    def _account_of(self, uid: str) -> _OpenAccount | None:
        """The open account of the command that is moving the pod, or that moved its predecessor."""
        moving = next((account for account in self._open.values() if uid in account.pods), None)
        moved = self._successors.get(uid)
        account = moving or (None if moved is None else moved.account)
        return account if account is not None and account.command.id in self._open else None

    def replacement_seen(self, claim: str, command: str) -> None:
        """A NodeClaim exists that the command planned."""
        if command in self._open:
            self._open[command].charges.setdefault(claim, 1.0)

    def lacks_price(self, claim: str) -> bool:
        """Whether the NodeClaim is charged to a command, and its price is not known yet."""
        return claim not in self._prices and any(claim in account.charges for account in self._open.values())

    def price_seen(self, claim: str, price: int | None) -> None:
        if price is not None:
            self._prices[claim] = price

    def claim_gone(self, claim: str, now: datetime) -> None:
        """A NodeClaim is gone. If no consolidation command removed it, it costs nothing from now on."""
        if claim in self._by_claim:
            self._settle(claim, now, removed=True)
            return
        for account in self._open.values():
            account.charges.pop(claim, None)
            account.unplanned.discard(claim)
        self._prices.pop(claim, None)

    def claim_stays(self, claim: str, now: datetime) -> None:
        """The command of the NodeClaim is given up."""
        if claim in self._by_claim:
            self._settle(claim, now, removed=False)

    def _settle(self, claim: str, now: datetime, *, removed: bool) -> None:
        account = self._by_claim[claim]
        if claim not in account.standing:
            return
        account.standing.remove(claim)
        if removed:
            account.removed.add(claim)
        if not account.standing:
            account.ended_at = now

    # -- the end -------------------------------------------------------------------------------------------------------

    def is_standing(self, claim: str) -> bool:
        """Whether a command is to remove the NodeClaim, and it is not known whether it goes or stays."""
        return claim in self._by_claim and claim in self._by_claim[claim].standing

    @property
    def standing(self) -> list[tuple[str, str]]:
        """All such NodeClaims, each with its command."""
        return [(claim, id_) for id_, account in self._open.items() for claim in sorted(account.standing)]

    @property
    def next_close_at(self) -> datetime | None:
        ends = [account.ended_at + WATCHED for account in self._open.values() if account.ended_at is not None]
        return min(ends, default=None)

    def settle(self, now: datetime, pool_size: Callable[[str], float]) -> SettledAccounts:
        """Closes the accounts that are due, and judges their pools. `pool_size`: the size of all pods of a pool.

        A command that cannot realise half of its promise any more is judged before its account is closed: the next
        ones would repeat its mistake.
        """
        closed: list[CommandAccount] = []
        backoffs: dict[str, SavingsBackoff] = {}
        for account in list(self._open.values()):
            is_due = account.ended_at is not None and account.ended_at + WATCHED <= now
            backoffs |= self._judged(account, now, pool_size, is_final=is_due)
            if is_due and account.ended_at is not None:
                closed.append(account.closed(account.ended_at, self._prices))
                self._drop(account)
        charged = {claim for account in self._open.values() for claim in account.charges}
        self._prices = {claim: price for claim, price in self._prices.items() if claim in charged}
        return SettledAccounts(closed, backoffs)

    def _judged(
        self, account: _OpenAccount, now: datetime, pool_size: Callable[[str], float], *, is_final: bool
    ) -> dict[str, SavingsBackoff]:
        """Returns the back-offs that begin. Commands that moved no pod say nothing about where pods land."""
        promised = account.command.savings or 0
        if account.is_judged or promised <= 0 or not (account.unplanned or (is_final and account.moved)):
            return {}
        realised = account.realised(self._prices, account.removed if is_final else account.removed | account.standing)
        if 2 * realised >= promised and not is_final:
            return {}
        account.is_judged = True
        judged = {pool: self.backoffs.judge(pool, promised, realised, now, pool_size) for pool in account.pools}
        return {pool: backoff for pool, backoff in judged.items() if backoff is not None}

    def _drop(self, account: _OpenAccount) -> None:
        del self._open[account.command.id]
        for candidate in account.command.candidates:
            for index, key in ((self._by_claim, candidate.claim), (self._by_node, candidate.node)):
                if index.get(key) is account:
                    del index[key]

    def _forget_old(self, now: datetime) -> None:
        """Forgets pods that were moved long ago, from time to time: many have no successor."""
        if self._forgets_at is not None and now < self._forgets_at:
            return
        self._forgets_at = now + WATCHED
        fresh = {uid: moved for uid, moved in self._successors.items() if now - moved.moved_at <= AGAIN_WITHIN}
        self._successors = fresh
        for kind, waiting in list(self._awaited.items()):
            remaining = deque(moved for moved in waiting if moved.until > now)
            if remaining:
                self._awaited[kind] = remaining
            else:
                del self._awaited[kind]


def record_size(pod: PodRecord) -> float:
    return _LEAST_SIZE if pod.scheduling is None else request_size(amounts_of(pod.scheduling).requests)


def request_size(request: Resources) -> float:
    """The size of a pod in cores: its cpu, and its memory at 4 GiB a core."""
    cpu, memory = request[CPU], request[MEMORY]
    return max(_LEAST_SIZE, cpu / _MILLICORES_PER_CORE + memory / _BYTES_PER_CORE)


def _stays_with_node(pod: PodRecord) -> bool:
    return bool(pod.owner & (Owner.DAEMONSET | Owner.NODE))
