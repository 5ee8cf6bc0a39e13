"""Quantities: the API machinery's answers, and the refusals."""

import json
import re
from pathlib import Path

import pytest

from dovetail.values.quantity import Format, Quantity, QuantityError, parse_quantity

GOLDEN = Path(__file__).parents[2] / "golden" / "quantity.json"
ROWS = json.loads(GOLDEN.read_text(encoding="utf-8"))


def parsed(text: str) -> Quantity | None:
    try:
        return parse_quantity(text)
    except QuantityError:
        return None


def fits(number: int) -> bool:
    """Beyond 64 bits the API machinery's numbers wrap around, so they say nothing."""
    return abs(number) < 2**63


def test_the_golden_file_is_there() -> None:
    assert len(ROWS) > 1400


def test_accepts_what_the_api_machinery_accepts() -> None:
    differ = [text for text, want in ROWS if (parsed(text) is None) != (want is None)]
    # The one difference is meant: the API machinery takes a text without any digit for zero.
    assert differ == [".", "-", "+", "-.", "m", "Ki", "E", "e3", ".e3", "+Ki"]


def test_prints_what_the_api_machinery_prints() -> None:
    wrong = []
    for text, want in ROWS:
        quantity = parsed(text)
        if quantity and [str(quantity), quantity.format] != want[2:]:
            wrong.append((want[2], str(quantity)))
    # The API machinery loses the zeros of multiples of 1e21, for which it has no suffix.
    assert wrong == [("1", "1000E")] * 3 + [("300", "300000000000E")]


def test_amounts_are_those_of_the_api_machinery() -> None:
    wrong, compared = [], 0
    for text, want in ROWS:
        quantity = parsed(text)
        # Below zero the API machinery is often off, even by orders of magnitude (-1.0Ti); see the next test.
        if not quantity or quantity.nano < 0:
            continue
        for got, wanted in zip((quantity.value(), quantity.milli()), want[:2], strict=True):
            if fits(got):
                compared += 1
                if got != wanted:
                    wrong.append((text, wanted, got))
    assert wrong == []
    assert compared > 1500


def test_below_zero_everything_mirrors() -> None:
    negative = [(text, quantity) for text, _ in ROWS if (quantity := parsed(text)) and quantity.nano < 0]
    assert len(negative) > 100
    for text, quantity in negative:
        mirror = parse_quantity(text.removeprefix("-"))
        assert (quantity.nano, quantity.value(), quantity.milli()) == (-mirror.nano, -mirror.value(), -mirror.milli())
        assert (str(quantity), quantity.format) == (f"-{mirror}", mirror.format)


@pytest.mark.parametrize(
    ("text", "nano", "form", "printed"),
    [
        ("1.5", 15 * 10**8, Format.DECIMAL_SI, "1500m"),
        (".5", 5 * 10**8, Format.DECIMAL_SI, "500m"),
        ("1.", 10**9, Format.DECIMAL_SI, "1"),
        ("1E", 10**27, Format.DECIMAL_SI, "1E"),
        ("1E3", 10**12, Format.DECIMAL_EXPONENT, "1e3"),
        ("12e6", 12 * 10**15, Format.DECIMAL_EXPONENT, "12e6"),
        ("1e4", 10**13, Format.DECIMAL_EXPONENT, "10e3"),
        ("1.5Gi", 1536 * 2**20 * 10**9, Format.BINARY_SI, "1536Mi"),
        ("0.5Ki", 512 * 10**9, Format.BINARY_SI, "512"),
        ("0.1Ki", 1024 * 10**8, Format.BINARY_SI, "102400m"),
        ("-0.1n", -1, Format.DECIMAL_SI, "-1n"),
        ("1e-999", 1, Format.DECIMAL_EXPONENT, "1e-9"),
        ("8Ei", (2**63 - 1) * 10**9, Format.BINARY_SI, "9223372036854775807"),
        ("-8Ei", -(2**63 - 1) * 10**9, Format.BINARY_SI, "-9223372036854775807"),
        ("0Gi", 0, Format.BINARY_SI, "0"),
    ],
)
def test_examples(text: str, nano: int, form: Format, printed: str) -> None:
    quantity = parse_quantity(text)
    assert (quantity.nano, quantity.format, str(quantity)) == (nano, form, printed)


@pytest.mark.parametrize(
    ("nano", "value", "milli"),
    [(1, 1, 1), (10**6, 1, 1), (10**6 + 1, 1, 2), (10**9, 1, 1000), (10**9 + 1, 2, 1001), (0, 0, 0)],
)
def test_rounding_is_away_from_zero(nano: int, value: int, milli: int) -> None:
    assert (Quantity(nano).value(), Quantity(nano).milli()) == (value, milli)
    assert (Quantity(-nano).value(), Quantity(-nano).milli()) == (-value, -milli)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1 Gi",
        " 1",
        "1\n",
        "1gi",
        "1K",
        "1GB",
        "inf",
        "nan",
        "\u0661",
        "\uff11",
        "1e\u0663",
        "1_0",
        "0x1",
        "1e",
        "1e1.5",
    ],
)
def test_refusals_name_the_value_and_the_form(text: str) -> None:
    with pytest.raises(QuantityError, match=re.escape(f"{text!r} is not a quantity: want ")):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["1e1000", "1e-1000", "0e1000", "1e999999999", "1e-999999999", "1E" + "9" * 900])
def test_huge_exponents_are_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="out of range: exponents go from -999 to 999") as caught:
        parse_quantity(text)
    assert len(str(caught.value)) < 200


def test_endless_texts_are_refused() -> None:
    assert parse_quantity("0" * 999 + "1").value() == 1
    for text in ("0" * 1000 + "1", "9" * (1 << 20), "1." + "0" * (1 << 20), "1e" + "0" * (1 << 20)):
        with pytest.raises(QuantityError) as caught:
            parse_quantity(text)
        assert len(str(caught.value)) < 200


def test_largest_amounts_still_print() -> None:
    assert str(parse_quantity("9" * 990 + "e999")) == "9" * 990 + "e999"


def test_quantities_compare_by_amount() -> None:
    assert parse_quantity("1Ki") == parse_quantity("1024") != parse_quantity("1k")
    assert hash(parse_quantity("1Ki")) == hash(parse_quantity("1024"))
    assert parse_quantity("1k") < parse_quantity("1Ki") < parse_quantity("1025")
