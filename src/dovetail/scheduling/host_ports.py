"""Which ports of its node does a pod take, and does another pod have one of them (05 §5)?"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from dovetail.api.pod_specs import SchedulingPodSpec

ANY_ADDRESS: Final = "0.0.0.0"
_ALL_ADDRESSES = frozenset((ANY_ADDRESS, "::"))


class HostPort(NamedTuple):
    """A port of the node, on one of its addresses or on all."""

    port: int
    protocol: str
    ip: str

    def conflicts(self, other: "HostPort") -> bool:
        if (self.port, self.protocol) != (other.port, other.protocol):
            return False
        return self.ip == other.ip or self.ip in _ALL_ADDRESSES or other.ip in _ALL_ADDRESSES

    def __str__(self) -> str:
        return f"{self.ip}:{self.port}/{self.protocol}"


HostPorts = frozenset[HostPort]
NO_PORTS: Final[HostPorts] = frozenset()


def host_ports(spec: SchedulingPodSpec) -> HostPorts:
    """Of its containers and sidecars. On the host's network every port is the host's; templates do not write that."""
    return frozenset(
        HostPort(number, port.protocol or "TCP", port.host_ip or ANY_ADDRESS)
        for container in (*spec.containers, *(each for each in spec.init_containers if each.restart_policy == "Always"))
        for port in container.ports
        if (number := port.host_port or (port.container_port if spec.host_network else 0))
    )


def conflict(ports: Iterable[HostPort], taken: HostPorts) -> HostPort | None:
    """The first port, by number, that the others have. Asked of other pods only: a pod is no conflict to itself."""
    return next((port for port in sorted(ports) if any(map(port.conflicts, taken))), None)
