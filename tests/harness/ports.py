"""Ports for servers of tests."""

import secrets
import socket
from typing import Final

# Below the ports that Linux gives to outgoing connections, so that none takes one before its server does, and a server
# finds its port again when it is restarted.
PORTS: Final = range(20000, 32768)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that nobody listens on now. By the system's randomness: tests seed Python's."""
    ports: list[int] = []
    for port in secrets.SystemRandom().sample(PORTS, k=200):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError("no free ports")


def free_port() -> int:
    (port,) = free_ports(1)
    return port
