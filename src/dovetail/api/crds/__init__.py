"""The CustomResourceDefinitions of NodePool, NodeClaim and KWOKNodeClass."""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final

import yaml

CORE_FILES: Final = ("karpenter.sh_nodepools.yaml", "karpenter.sh_nodeclaims.yaml")
KWOK_FILES: Final = ("karpenter.kwok.sh_kwoknodeclasses.yaml",)
FILES: Final = (*CORE_FILES, *KWOK_FILES)


def crd_text(files: Sequence[str] = FILES) -> str:
    """The definitions as one YAML stream, comments included, ready for `kubectl apply -f -`."""
    return "---\n".join(_read(file) for file in files)


def load_crds() -> list[dict[str, Any]]:
    """All definitions as new documents, in the order of `FILES`."""
    return [yaml.load(_read(file), Loader=yaml.CSafeLoader) for file in FILES]


def _read(file: str) -> str:
    return files(__name__).joinpath(file).read_text(encoding="utf-8")
