"""Why can a pod not go to a node? What holds for nodes that exist and for those that are to be made."""

from dovetail.scheduling.host_ports import HostPorts, conflict
from dovetail.scheduling.placement import PodError, PodInfo
from dovetail.scheduling.relaxation import RelaxedRequest
from dovetail.scheduling.taints import Taints, untolerated


class Refusal(Exception):
    """The pod cannot go there; the message is for people."""


class PlacementDeferred(Exception):
    """It could, were it not for others: relaxing does not help, the next run may."""


def pod_error(pod: PodInfo, refusal: Refusal | PlacementDeferred) -> PodError:
    return PodError(pod.ref, pod.origin, str(refusal), waiting=isinstance(refusal, PlacementDeferred))


def check_taints(wish: RelaxedRequest, taints: Taints) -> None:
    if taint := untolerated(wish.tolerations, taints):
        value = f"={taint.value}" if taint.value else ""
        raise Refusal(f"the taint {taint.key}{value}:{taint.effect} is not tolerated")


def check_ports(ports: HostPorts, taken: HostPorts) -> None:
    if port := conflict(ports, taken):
        raise Refusal(f"host port {port} is taken")
