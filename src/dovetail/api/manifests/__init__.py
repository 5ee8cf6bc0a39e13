"""The manifests for running the controller in a cluster, in the order of creation."""

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Final

import yaml

from dovetail.api.crds import CORE_FILES, crd_text
from dovetail.api.manifests.admission import admission
from dovetail.api.manifests.deployment import deployment
from dovetail.api.manifests.parts import Manifest
from dovetail.api.manifests.rbac import Grant, rbac
from dovetail.api.names import DovetailMode

NAMESPACE: Final = "dovetail-system"


class Part(StrEnum):
    """A part that can be printed alone."""

    CRDS = "crds"
    RBAC = "rbac"
    ADMISSION = "admission"
    DEPLOYMENT = "deployment"


def manifests(
    *,
    namespace: str,
    image: str,
    parts: Collection[Part] = tuple(Part),
    provider_crds: Sequence[str] = (),
    provider_rules: Sequence[Grant] = (),
    scheduler_config: str = "",
    spread_by_default: bool = False,
    mode: DovetailMode = DovetailMode.RUN,
    hold_pods: bool = False,
) -> str:
    """The manifests as one YAML stream, for `kubectl apply -f -`.

    `provider_crds` and `provider_rules`: what the provider adds. `scheduler_config`: the text for the option of this
    name. `spread_by_default`: it has default spread constraints. `mode`: beside Karpenter there are no CRDs, because
    Karpenter's own are installed. `hold_pods`: the option of guard and drive.
    """
    documents: list[Manifest] = []
    if Part.RBAC in parts:
        documents += rbac(
            namespace, provider_rules, spread_by_default=spread_by_default, mode=mode, hold_pods=hold_pods
        )
    if Part.ADMISSION in parts:
        documents += admission()
    if Part.DEPLOYMENT in parts:
        documents += deployment(namespace, image, scheduler_config, mode, hold_pods=hold_pods)
    texts = [crd_text(CORE_FILES), *provider_crds] if Part.CRDS in parts and mode is DovetailMode.RUN else []
    texts += [
        yaml.dump(document, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=2**20)
        for document in documents
    ]
    return "---\n".join(texts)


class _PlainDumper(yaml.SafeDumper):
    """Without anchors, and with quoted texts as they are."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "'" in text else None)


_PlainDumper.add_representer(str, _text)
