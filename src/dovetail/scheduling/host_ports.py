"""Host ports of pods, and conflicts between them (05 §5)."""

from typing import Final, NamedTuple

from dovetail.api.pod_specs import SchedulingPodSpec

ANY_ADDRESS: Final = "0.0.0.0"
_ALL_ADDRESSES = frozenset((ANY_ADDRESS, "::"))


class HostPort(NamedTuple):
    """A port of the node, on one address or on all."""

    port: int
    protocol: str
    ip: str

    def __str__(self) -> str:
        return f"{self.ip}:{self.port}/{self.protocol}"


HostPorts = frozenset[HostPort]
NO_PORTS: Final[HostPorts] = frozenset()


def host_ports(spec: SchedulingPodSpec) -> HostPorts:
    """The host ports of containers and sidecars. With host network every port is one, even if the template does not say
    so.
    """
    return frozenset(
        HostPort(number, port.protocol or "TCP", port.host_ip or ANY_ADDRESS)
        for container in (*spec.containers, *(init for init in spec.init_containers if init.restart_policy == "Always"))
        for port in container.ports
        if (number := port.host_port or (port.container_port if spec.host_network else 0))
    )


def conflict(ports: HostPorts, taken: HostPorts) -> HostPort | None:
    """The first port, by number, that another pod has taken."""
    if not ports or not taken:
        return None
    addresses: dict[tuple[int, str], set[str]] = {}
    for port in taken:
        addresses.setdefault(port[:2], set()).add(port.ip)
    return next((port for port in sorted(ports) if _is_taken(port, addresses.get(port[:2]))), None)


def _is_taken(port: HostPort, by: set[str] | None) -> bool:
    return by is not None and (port.ip in by or port.ip in _ALL_ADDRESSES or not by.isdisjoint(_ALL_ADDRESSES))
