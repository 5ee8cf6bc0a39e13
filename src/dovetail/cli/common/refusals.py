"""Says why a cluster does not answer: it cannot be reached, it does not know the user, or the user lacks a right."""

from typing import Final

from dovetail.ports import ApiError, Forbidden

UNAUTHORIZED: Final = 401


def why_no_answer(error: ApiError) -> str:
    """The sentence, without a full stop."""
    if error.code == UNAUTHORIZED:
        return f"the cluster refuses these credentials: {error}"
    if isinstance(error, Forbidden):
        return f"this user lacks a right: {error}"
    return f"the cluster cannot be reached: {error}"
