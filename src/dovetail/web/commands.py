"""Which commands does somebody type who wants to know more about a node?"""

import shlex

from dovetail.model.snapshot import ClusterNode


def commands_about(member: ClusterNode, asking: str) -> list[str]:
    """To be copied into a shell: names are quoted, for those in files may hold anything."""
    explain = " ".join(filter(None, ("dovetail explain", asking)))
    found = [f"{explain} {_argument(member.object)}"]
    if member.node is not None:
        name = member.node.name
        found.append(f"kubectl describe node {_argument(name)}")
        found.append(f"kubectl get pods -A -o wide --field-selector {_argument(f'spec.nodeName={name}')}")
    if member.claim is not None:
        found.append(f"kubectl get nodeclaim {_argument(member.claim.name)} -o yaml")
    if member.pool:
        found.append(f"kubectl get nodepool {_argument(member.pool)} -o yaml")
    return found


def _argument(text: str) -> str:
    kind, slash, name = text.partition("/")
    return shlex.quote(f"{kind.lower()}/{name}" if slash and kind in {"Node", "NodeClaim"} else text)
