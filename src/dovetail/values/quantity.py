"""Exact Kubernetes resource quantities such as 500m, 1.5Gi or 1e3.

Amounts follow the API machinery. Where its results are accidents, this module follows the documentation: see
tests/golden/values.md.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum

from dovetail.values.duration import shown

NANO_PER_UNIT = 10**9
NANO_PER_MILLI = 10**6

# The limits keep hostile texts cheap.
MAX_LENGTH = 1000
_MAX_EXPONENT = 999

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_NAMES = {exponent: name for name, exponent in _DECIMAL.items()}
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_BINARY_CAP = (2**63 - 1) * NANO_PER_UNIT

# The lookahead requires a digit in the number.
_FORM = re.compile(
    r"([+-]?)(?=\.?[0-9])([0-9]*+)(?:\.([0-9]*+))?([KMGTPE]i|[numkMGTPE]|[eE](?P<exponent>[+-]?[0-9]++))?"
)


class QuantityError(ValueError):
    """The text is not a quantity, or is out of bounds; the message is for people."""


class Format(StrEnum):
    """The family of suffixes in which a quantity is written."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact amount. Quantities compare by amount: 1Ki equals 1024."""

    nano: int
    format: Format = field(default=Format.DECIMAL_SI, compare=False)

    def value(self) -> int:
        """Whole units, rounded away from zero."""
        return _divide(self.nano, NANO_PER_UNIT)

    def milli(self) -> int:
        """Whole thousandths, rounded away from zero."""
        return _divide(self.nano, NANO_PER_MILLI)

    def __str__(self) -> str:
        """The canonical form: no fraction, and the largest possible suffix."""
        units, fraction = divmod(self.nano, NANO_PER_UNIT)
        if self.format is Format.BINARY_SI and not fraction and abs(units) >= 1024:
            power = 0
            while units % 1024 == 0 and power < len(_BINARY) - 1:
                units, power = units // 1024, power + 1
            return f"{units}{_BINARY[power]}"
        number, exponent = self.nano, -9
        by_exponent = self.format is Format.DECIMAL_EXPONENT
        while number and number % 1000 == 0 and (exponent < 18 or by_exponent):
            number, exponent = number // 1000, exponent + 3
        if number == 0 or exponent == 0:
            return str(number)
        return f"{number}e{exponent}" if by_exponent else f"{number}{_DECIMAL_NAMES[exponent]}"


def parse_quantity(text: str) -> Quantity:
    """The amount of the text, rounded away from zero to a billionth."""
    match = _FORM.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if not match:
        raise QuantityError(
            f"{shown(text)} is not a quantity: want a number and a suffix, such as 2, 500m, 1.5Gi or 1e3"
        )
    sign, whole, fraction, suffix = match.group(1, 2, 3, 4)
    fraction, suffix = fraction or "", suffix or ""
    number = int(whole + fraction)
    exponent = 9 - len(fraction)  # to nano
    form = Format.DECIMAL_SI
    if suffix in _DECIMAL:
        exponent += _DECIMAL[suffix]
    elif suffix in _BINARY:
        form = Format.BINARY_SI
        number *= 1024 ** _BINARY.index(suffix)
    else:
        form = Format.DECIMAL_EXPONENT
        power = int(match["exponent"])
        if abs(power) > _MAX_EXPONENT:
            raise QuantityError(f"{shown(text)} is out of range: exponents go from -{_MAX_EXPONENT} to {_MAX_EXPONENT}")
        exponent += power
    nano = number * 10**exponent if exponent >= 0 else _divide(number, 10**-exponent)
    if form is Format.BINARY_SI:
        nano = min(nano, _BINARY_CAP)
        if 0 < nano < NANO_PER_UNIT:
            form = Format.DECIMAL_SI
    return Quantity(-nano if sign == "-" else nano, form)


def _divide(number: int, by: int) -> int:
    """The quotient rounded away from zero."""
    return -(-number // by) if number >= 0 else number // by
