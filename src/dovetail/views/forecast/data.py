"""The parts of a forecast. Keys are stable, new ones may be added; times are UTC."""

from datetime import datetime
from enum import StrEnum

from dovetail.model.decider import Decider
from dovetail.model.finding import Finding
from dovetail.model.refs import Ref
from dovetail.views.explain.badges import Badge
from dovetail.views.explain.data import View

ASSUMPTION = "nothing but time changes"


class SpanKind(StrEnum):
    """The state of a node during a span, for any graceful reason; budgets aside."""

    FREE = "free"
    BLOCKED = "blocked"
    DRAINING = "draining"
    GONE = "gone"


class ForecastEventType(StrEnum):
    """The type of an event of a node or of a pod on it."""

    EXPIRES = "expires"
    GRACEFULLY_EXPIRES = "gracefully-expires"
    DISRUPTS = "disrupts"
    FREE = "free"
    BLOCKED = "blocked"
    WINDOW_OPENS = "window-opens"
    WINDOW_CLOSES = "window-closes"
    POD_EVICTED = "pod-evicted"
    POD_DELETED = "pod-deleted"
    DEADLINE = "deadline"
    FORCED = "forced"


class Certainty(StrEnum):
    """Exact: it happens unless somebody edits an object. Assumed: it happens if nothing but time changes."""

    EXACT = "exact"
    ASSUMED = "assumed"


class Blocker(View, frozen=True):
    """A rule that blocks, from when within the span, and until when."""

    rule: str
    object: Ref
    message: str
    start: datetime
    until: datetime | None


class NodeSpan(View, frozen=True):
    start: datetime
    end: datetime
    kind: SpanKind
    causes: tuple[Blocker, ...] = ()


class ReasonSpan(View, frozen=True):
    """`allowed`: with the present use of budgets."""

    start: datetime
    end: datetime
    wanted: bool
    allowed: bool


class ReasonForecast(View, frozen=True):
    reason: str
    wanted: bool
    spans: tuple[ReasonSpan, ...]


class ForecastEvent(View, frozen=True):
    at: datetime
    type: ForecastEventType
    object: Ref
    message: str
    certainty: Certainty


class NodeForecast(View, frozen=True, kw_only=True):
    name: str
    nodepool: str | None
    node_claim: str | None
    state: str
    instance_type: str | None = None
    capacity_type: str | None = None
    zone: str | None = None
    managed: bool = True
    """False: no NodePool owns it, and no rule here is about it."""
    badges: tuple[Badge, ...] = ()
    undated: bool = False
    """Nobody has to free it, and when it becomes free is not known: `free_at` is None."""
    pods: int
    free_at: datetime | None
    """The first instant at which no rule blocks; None: never within five years."""
    expires_at: datetime | None
    gracefully_expires_at: datetime | None
    deadline: datetime | None
    """Of a drain that has begun, or that begins within the span."""
    spans: tuple[NodeSpan, ...]
    reasons: tuple[ReasonForecast, ...]
    events: tuple[ForecastEvent, ...]
    standing: str
    """Now: steady, free, waiting or stuck, as in `explain`."""
    cut_at: datetime | None = None
    """The answer changes so often that the forecast stops here; the last state fills the span."""


class BudgetSpan(View, frozen=True):
    start: datetime
    end: datetime
    limit: int
    in_use: int
    allowed: int
    budget: int | None
    """Index of the budget that binds; None: none."""


class BudgetForecast(View, frozen=True):
    reason: str
    forceful: bool
    """Budgets do not apply to the reason (R19), so these figures have no effect."""
    spans: tuple[BudgetSpan, ...]


class PoolForecast(View, frozen=True):
    name: str
    nodes: int
    reasons: tuple[BudgetForecast, ...]


class Burst(View, frozen=True):
    """Many nodes of one pool with the same event within a short time."""

    start: datetime
    end: datetime
    type: ForecastEventType
    nodepool: str | None
    count: int
    nodes: tuple[str, ...]
    message: str


class Forecast(View, frozen=True, kw_only=True):
    at: datetime
    decider: Decider
    end: datetime
    assumption: str = ASSUMPTION
    exact_until: datetime
    """Nothing is moved, launched or removed before: until then everything in the forecast is exact."""
    nodes: tuple[NodeForecast, ...]
    nodepools: tuple[PoolForecast, ...]
    herds: tuple[Burst, ...]
    problems: tuple[Finding, ...]
