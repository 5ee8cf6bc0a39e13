"""Current names of labels, restricted labels, and guesses for misspelled ones (05 §2.1)."""

from collections.abc import Iterable
from typing import Final

from dovetail.api import names

# These domains and their subdomains belong to the controller and the provider.
RESTRICTED_DOMAINS: Final = (names.GROUP, names.KWOK_GROUP)


def normalised(key: str) -> str:
    return names.NORMALISED_LABELS.get(key, key)


def is_restricted(key: str, well_known: frozenset[str] = names.WELL_KNOWN_LABELS) -> bool:
    """Whether pods and NodePools must not ask for the label, because no new node can be promised to have it."""
    if key in well_known:
        return False
    domain = key.rpartition("/")[0]
    return key == names.HOSTNAME_LABEL or any(
        f".{domain}".endswith(f".{restricted}") for restricted in RESTRICTED_DOMAINS
    )


def likely_meant(key: str, known: Iterable[str]) -> str | None:
    """The known label that the key may be a misspelling of."""
    others = sorted(set(known) - {key})
    name = key.rpartition("/")[2]
    alike = [other for other in others if name and other.rpartition("/")[2] == name]
    return next(iter(alike or [other for other in others if key and key in other]), None)
