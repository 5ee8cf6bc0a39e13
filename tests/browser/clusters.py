"""Clusters to look at: of any size, with every kind of protection, the same for the same numbers."""

from random import Random

import msgspec

from dovetail.api import objects
from dovetail.api.names import DISRUPTED_TAINT, NODEPOOL_LABEL
from dovetail.model.node_records import ClaimRecord, InstanceLabels, claim_record
from dovetail.model.pod_records import PodRecord
from dovetail.model.pool_records import PoolRecord
from dovetail.model.snapshot import Snapshot
from tests.harness import builders
from tests.harness.builders import at
from tests.harness.snapshots import take_snapshot

NOW = at("2026-03-06T16:20:00Z")
POOLS = {"general": 0.5, "batch": 0.2, "gpu": 0.1, "services": 0.2}
TYPES = {"general": "c-8x-amd64", "batch": "m-16x-amd64", "gpu": "g-8x-amd64", "services": "r-4x-arm64"}
WORKLOADS = [
    ("shop", "cart"),
    ("shop", "checkout"),
    ("shop", "frontend"),
    ("shop", "invoice-worker"),
    ("data", "redis"),
    ("data", "warehouse-loader"),
    ("ml", "trainer"),
    ("ml", "notebook"),
    ("ci", "runner"),
    ("search", "indexer"),
    ("search", "query"),
    ("pay", "ledger"),
]
PROTECTIONS: list[dict[str, str]] = [
    {"schedule": "0 2 * * *", "duration": "6h"},
    {"schedule": "CRON_TZ=Europe/Berlin 0 22 * * 1-5", "duration": "8h"},
    {"block_schedule": "CRON_TZ=Europe/Berlin 0 8 * * 1-5", "block_duration": "10h"},
    {"do_not_disrupt": "true"},
    {"do_not_disrupt": "30h"},
    {"do_not_disrupt": "9h"},
]
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def cluster(nodes: int, seed: int = 1) -> Snapshot:
    """So many nodes in four pools with about eight pods each."""
    chance = Random(seed)
    pods: list[PodRecord] = []
    members, claims = [], []
    for number in range(nodes):
        pool = chance.choices(list(POOLS), list(POOLS.values()))[0]
        name = f"{pool}-{_word(chance, 5)}{number:x}"
        draining = chance.random() < 0.02
        taints = [(DISRUPTED_TAINT, "NoSchedule")] if draining else []
        member = builders.node(name, pool=pool, taints=taints, created="2026-03-01T08:30:00Z")
        claims.append(_claim(name, pool, chance, draining=draining))
        zone = f"eu-central-1{chance.choice('abc')}"
        machine = InstanceLabels(
            instance_type=TYPES[pool], capacity_type=chance.choice(["spot", "on-demand"]), zone=zone
        )
        members.append(msgspec.structs.replace(member, machine=machine))
        pods += [_pod(name, chance) for _ in range(chance.randrange(3, 13) if chance.random() > 0.03 else 0)]
    pdbs = [
        builders.pdb("ledger", namespace="pay", match={"app": "ledger"}, max_unavailable=0, allowed=0, expected=9),
        builders.pdb("cart", namespace="shop", match={"app": "cart"}, max_unavailable=1, allowed=1, expected=9),
    ]
    return take_snapshot(pods=pods, nodes=members, claims=claims, pools=_pools(), pdbs=pdbs)


def _pools() -> list[PoolRecord]:
    office_hours = "CRON_TZ=Europe/Berlin 0 8 * * 1-5"
    closed = builders.budget("0", ["Drifted", "Underutilized"], office_hours, "10h")
    return [
        builders.pool("general", budgets=[closed, builders.budget("5%"), builders.budget("20%", ["Empty"])]),
        builders.pool("batch", budgets=[builders.budget("10%"), builders.budget("3", ["Drifted"])]),
        builders.pool("gpu", budgets=[builders.budget("1"), builders.budget("0", [], "0 6 * * *", "12h")]),
        builders.pool("services", budgets=[builders.budget("2")], graceful_expire_after="130h"),
    ]


def _claim(name: str, pool: str, chance: Random, *, draining: bool) -> ClaimRecord:
    # Many were made together, so that they expire together.
    hour, minute = (8, chance.randrange(10)) if chance.random() < 0.3 else (chance.randrange(24), chance.randrange(60))
    drifted = chance.random() < 0.15
    drifted_at = at(f"2026-03-0{chance.randrange(2, 6)}T{chance.randrange(24):02}:15:00Z")
    known = [("Launched", None), ("Registered", None), ("Initialized", None)]
    conditions = [objects.Condition(type=type_, status="True") for type_, _ in known]
    if drifted:
        conditions.append(objects.Condition(type="Drifted", status="True", last_transition_time=drifted_at))
    deadline = f"2026-03-0{chance.randrange(7, 9)}T{chance.randrange(24):02}:00:00Z"
    return claim_record(
        objects.NodeClaim(
            metadata=objects.ObjectMeta(
                name=name,
                uid=f"uid-claim-{name}",
                labels={NODEPOOL_LABEL: pool},
                annotations={"karpenter.sh/nodeclaim-termination-timestamp": deadline} if draining else {},
                creation_timestamp=at(f"2026-02-{chance.randrange(24, 29)}T{hour:02}:{minute:02}:00Z"),
                deletion_timestamp=at("2026-03-06T11:40:00Z") if draining else None,
            ),
            spec=objects.NodeClaimSpec(
                expire_after="336h" if pool == "general" else "264h" if pool == "batch" else "Never",
                termination_grace_period="24h" if pool in {"batch", "gpu"} else None,
            ),
            status=objects.NodeClaimStatus(provider_id=f"kwok://{name}", conditions=conditions),
        )
    )


def _pod(node: str, chance: Random) -> PodRecord:
    # What can never be moved is rare.
    namespace, app = WORKLOADS[-1] if chance.random() < 0.015 else chance.choice(WORKLOADS[:-1])
    told = chance.choices(PROTECTIONS, [3, 2, 3, 1, 2, 2])[0] if chance.random() < 0.1 else {}
    return builders.pod(
        f"{app}-{_word(chance, 10)}-{_word(chance, 5)}",
        namespace=namespace,
        node=node,
        labels={"app": app},
        created=f"2026-03-0{chance.randrange(1, 7)}T{chance.randrange(16):02}:05:00Z",
        **told,  # type: ignore[arg-type]
    )


def _word(chance: Random, length: int) -> str:
    return "".join(chance.choice(_LETTERS) for _ in range(length))
