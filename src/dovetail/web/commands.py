"""Which commands does somebody type who wants to know more about a node?"""

import shlex

from dovetail.model.snapshot import ClusterNode


def commands_about(member: ClusterNode, asking: str) -> list[str]:
    """To be copied into a shell: names are quoted, for those in files may hold anything."""
    explain = " ".join(filter(None, ("dovetail explain", asking)))
    found = [f"{explain} {shlex.quote(f'{member.object.kind.lower()}/{member.object.name}')}"]
    if member.node is not None:
        name = member.node.name
        found.append(f"kubectl describe node {shlex.quote(name)}")
        found.append(f"kubectl get pods -A -o wide --field-selector {shlex.quote(f'spec.nodeName={name}')}")
    if member.claim is not None:
        found.append(f"kubectl get nodeclaim {shlex.quote(member.claim.name)} -o yaml")
    if member.pool:
        found.append(f"kubectl get nodepool {shlex.quote(member.pool)} -o yaml")
    return found
