"""Follows nodes that are to be replaced until they are gone, and says what each of them waits for."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Final

from dovetail.api.names import Reason
from dovetail.cli.common.output import count
from dovetail.cli.roll.roller import RolledNode
from dovetail.model.node_records import ClaimRecord
from dovetail.model.snapshot import ClusterNode
from dovetail.planning.rolling import RollOutcome
from dovetail.rules.reasons import MARKED
from dovetail.rules.states import IN_DISRUPTION, MEANING
from dovetail.values.duration import SECOND, short_duration
from dovetail.values.foreign_text import plain
from dovetail.values.timestamp import spoken_time
from dovetail.views.assessment import Assessment, NodeAssessment, assess
from dovetail.views.explain.answers import answer
from dovetail.views.explain.standings import NodeStanding
from dovetail.web.sources import BoardSource

# Controllers answer within a second or two.
UNANSWERED_AFTER: Final = timedelta(seconds=30)
LOOK_SECONDS: Final = 1.0
FOLLOWED: Final = frozenset({RollOutcome.ASKED, RollOutcome.ALREADY_ASKED, RollOutcome.HAS_BEGUN})


class RollProgress:
    """The nodes that are not gone yet, and what was last said about each."""

    def __init__(self, source: BoardSource, rolled: Iterable[RolledNode], tell: Callable[[str], None]) -> None:
        self._source = source
        self._left = {node.uid: node for node in rolled if node.outcome in FOLLOWED}
        self._tell = tell
        self._said: dict[str, tuple[object, ...]] = {}  # by UID
        self._warned = False

    async def follow(self) -> bool:
        """Return when all nodes are gone, and whether each was replaced as asked."""
        began_at, number, taken_back = self._source.clock.now(), len(self._left), 0
        while self._left:
            seen = self._source.look()
            assessment = assess(seen.take(), seen.at)
            there = {member.claim.uid: (member, member.claim) for member in assessment.snapshot.nodes if member.claim}
            for uid, rolled in list(self._left.items()):
                name = rolled.node or rolled.node_claim
                if uid not in there:
                    del self._left[uid]
                    span = round((seen.at - began_at).total_seconds()) * SECOND
                    self._say(name, f"gone after {short_duration(span)}; {len(self._left)} left")
                elif _is_taken_back(assessment.node(there[uid][0]), there[uid][1]):
                    del self._left[uid]
                    taken_back += 1
                    self._say(name, "its mark was removed, so it stays")
                else:
                    self._report(uid, assessment, there[uid][0])
            self._warn_if_unanswered(there.values(), seen.at - began_at)
            if self._left:
                await self._source.changed(seen, seen.at + UNANSWERED_AFTER)
                await self._source.clock.sleep(LOOK_SECONDS)
        gone = f"{number - taken_back} of {count(number, 'node')} replaced"
        self._tell(gone)
        return not taken_back

    def _report(self, uid: str, assessment: Assessment, member: ClusterNode) -> None:
        """Say what the node waits for, unless that was said last."""
        node, rolled = assessment.node(member), self._left[uid]
        found_answer = answer(assessment, node, assessment.judge(node))
        going = node.state in IN_DISRUPTION
        key = (node.state, found_answer.standing, found_answer.rule, None if going else found_answer.until)
        if self._said.get(uid) == key:
            return
        self._said[uid] = key
        cause = plain(str(found_answer.cause))
        if going:
            text = f"{node.state} {MEANING[node.state]}: {cause}"
        elif found_answer.standing is NodeStanding.STEADY or not _is_drifted(member):
            text = "asked"
        elif found_answer.standing is NodeStanding.FREE:
            text = cause
        else:
            until = found_answer.until
            when = "" if until is None or spoken_time(until) in cause else f" until {spoken_time(until)}"
            stuck = "is stuck" if found_answer.standing is NodeStanding.STUCK else "waits"
            text = f"{stuck}{when}: {cause}"
        self._say(rolled.node or rolled.node_claim, text)

    def _warn_if_unanswered(self, there: Iterable[tuple[ClusterNode, ClaimRecord]], waited: timedelta) -> None:
        if self._warned or waited < UNANSWERED_AFTER:
            return
        unanswered = [member for member, claim in there if claim.uid in self._left and not _is_drifted(member)]
        if unanswered:
            self._warned = True
            about = f"{plain(unanswered[0].name)}{f' and {len(unanswered) - 1} more' if len(unanswered) > 1 else ''}"
            self._tell(
                f"no controller has answered for {about} in {round(waited.total_seconds())} s; "
                "is dovetail run, guard or drive running, and does it manage this NodePool?"
            )

    def _say(self, name: str, text: str) -> None:
        self._tell(f"{plain(name)}  {text}")


def _is_drifted(member: ClusterNode) -> bool:
    claim = member.claim
    return claim is not None and (claim.is_true(MARKED[Reason.DRIFTED]) or member.deleting)


def _is_taken_back(node: NodeAssessment, claim: ClaimRecord) -> bool:
    return claim.roll is None and node.state not in IN_DISRUPTION and not claim.stamped
