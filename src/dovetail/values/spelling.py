"""Finds the word that a misspelt word was meant to be."""

from collections.abc import Iterable

_MAX_LENGTH = 80  # longer words are not typing errors
_SEPARATORS = str.maketrans("", "", "-_ ")


def meant_word(word: str, known: Iterable[str], most_errors: int = 2) -> str | None:
    """The known word that differs from this one by the fewest typing errors; None if none or several are that near.

    Case, hyphens, underscores and blanks do not count as errors. Short words may have fewer errors: a word of four
    letters none, a word of seven letters one.
    """
    plain = _plain(word)
    if len(word) > _MAX_LENGTH or not plain:
        return None
    most = min(most_errors, 0 if len(plain) <= 4 else 1 if len(plain) <= 7 else 2)
    nearest: list[str] = []
    for name in known:
        errors = _errors(plain, _plain(name), most)
        if errors < most:
            most, nearest = errors, [name]
        elif errors == most:
            nearest.append(name)
    return nearest[0] if len(nearest) == 1 else None


def _plain(word: str) -> str:
    return word.lower().translate(_SEPARATORS)


def _errors(one: str, other: str, most: int) -> int:
    """How many letters to insert, remove, replace, or swap with the next one; more than `most` if that is exceeded."""
    if one == other:
        return 0
    # One error adds a letter, removes one, or does both: most words are told apart by this alone.
    if abs(len(one) - len(other)) > most or len(set(one) ^ set(other)) > 2 * most:
        return most + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for place, letter in enumerate(one, start=1):
        above, row = row, [place]
        for at, other_letter in enumerate(other, start=1):
            cost = min(above[at] + 1, row[at - 1] + 1, above[at - 1] + (letter != other_letter))
            if place > 1 and at > 1 and letter == other[at - 2] and other_letter == one[place - 2]:
                cost = min(cost, before[at - 2] + 1)
            row.append(cost)
        before = above
        if min(row) > most:
            return most + 1
    return row[-1]
