"""Which ports of its node does a pod take, and does another pod have one of them (05 §5)?"""

from typing import Final, NamedTuple

from dovetail.api.pod_specs import SchedulingPodSpec

ANY_ADDRESS: Final = "0.0.0.0"
_ALL_ADDRESSES = frozenset((ANY_ADDRESS, "::"))


class HostPort(NamedTuple):
    """A port of the node, on one of its addresses or on all."""

    port: int
    protocol: str
    ip: str

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


def conflict(ports: HostPorts, taken: HostPorts) -> HostPort | None:
    """The first port, by number, that the others have. Asked of other pods only: a pod is no conflict to itself."""
    if not ports or not taken:
        return None
    addresses: dict[tuple[int, str], set[str]] = {}
    for port in taken:
        addresses.setdefault(port[:2], set()).add(port.ip)
    return next((port for port in sorted(ports) if _is_taken(port, addresses.get(port[:2]))), None)


def _is_taken(port: HostPort, by: set[str] | None) -> bool:
    """Whether others have it on one of these addresses."""
    return by is not None and (port.ip in by or port.ip in _ALL_ADDRESSES or not by.isdisjoint(_ALL_ADDRESSES))
