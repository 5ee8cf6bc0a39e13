"""Laws that hold for all durations, quantities, selectors and times."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st

from dovetail.values.duration import (
    DAY,
    HOUR,
    MAX,
    MIN,
    MINUTE,
    SECOND,
    DurationError,
    add,
    format_duration,
    parse_budget_duration,
    parse_duration,
    parse_nillable,
    parse_simple,
    short_duration,
)
from dovetail.values.quantity import Format, Quantity, QuantityError, parse_quantity
from dovetail.values.selector import make_selector
from dovetail.values.timestamp import TimeError, format_time, parse_time, relative

FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)

spans = st.one_of(
    st.integers(MIN, MAX),
    st.integers(-DAY, DAY),
    st.builds(lambda count, unit: count * unit, st.integers(-2000, 2000), st.sampled_from([SECOND, MINUTE, HOUR, DAY])),
)
moments = st.datetimes(timezones=st.just(UTC))
amounts = st.builds(
    lambda number, power, base: number * base**power,
    st.integers(-(2**63), 2**63),
    st.integers(0, 6),
    st.sampled_from([1000, 1024]),
)
words = st.sampled_from(["", "a", "b", "c"])
label_sets = st.dictionaries(words, words)
expressions = st.lists(
    st.one_of(
        st.tuples(words, st.sampled_from(["In", "NotIn"]), st.lists(words, min_size=1, max_size=3)),
        st.tuples(words, st.sampled_from(["Exists", "DoesNotExist"]), st.just(list[str]())),
    ),
    max_size=3,
)


@given(spans)
def test_printed_durations_parse_back(ns: int) -> None:
    assert parse_duration(format_duration(ns)) == ns


@given(spans)
def test_short_durations_lose_nothing(ns: int) -> None:
    assert parse_duration(short_duration(ns)) == ns


@given(st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from("smh")), min_size=1, max_size=6))
def test_crd_durations_are_sums(parts: list[tuple[int, str]]) -> None:
    text = "".join(f"{count}{unit}" for count, unit in parts)
    total = sum(count * {"s": SECOND, "m": MINUTE, "h": HOUR}[unit] for count, unit in parts)
    assume(total <= MAX)
    assert parse_nillable(text) == parse_simple(text) == parse_duration(text) == total


@given(st.one_of(st.text(), st.text(alphabet="0123456789.+-smhnuµdeEKMGi \n", max_size=12)))
def test_any_text_is_answered_or_refused(text: str) -> None:
    for parse, error in (
        (parse_duration, DurationError),
        (parse_nillable, DurationError),
        (parse_simple, DurationError),
        (parse_budget_duration, DurationError),
        (parse_quantity, QuantityError),
        (parse_time, TimeError),
    ):
        try:
            parse(text)
        except error as refusal:
            assert len(str(refusal)) < 700  # ten characters for each escaped one  # noqa: PT017


@given(moments, spans)
def test_add_is_the_first_microsecond_not_before(at: datetime, ns: int) -> None:
    later = add(at, ns)
    micros = Fraction(ns, 1000)
    if later is None:
        room = LAST - at if ns > 0 else at - FIRST
        assert abs(micros) > room // timedelta(microseconds=1)
    else:
        moved = (later - at) // timedelta(microseconds=1)
        assert moved - 1 < micros <= moved


@given(moments, spans, spans)
def test_add_keeps_the_order(at: datetime, one: int, two: int) -> None:
    sooner, later = add(at, min(one, two)), add(at, max(one, two))
    if sooner is not None and later is not None:
        assert sooner <= later


@given(amounts, st.sampled_from(Format))
def test_printed_quantities_parse_back(nano: int, form: Format) -> None:
    if form is Format.BINARY_SI:
        assume(abs(nano) < 2**63 * 10**9)  # beyond, parsing caps
    quantity = Quantity(nano, form)
    again = parse_quantity(str(quantity))
    assert again == quantity
    # A text without suffix does not tell its family, so 1000000 may come back as 1M.
    if again.format is form:
        assert str(again) == str(quantity)


@given(
    st.integers(0, 10**20),
    st.integers(0, 25),
    st.sampled_from(["n", "u", "m", "", "k", "M", "G", "T", "P", "E"]),
    st.booleans(),
)
def test_decimal_quantities_are_their_arithmetic(number: int, places: int, suffix: str, negative: bool) -> None:
    digits = str(number).rjust(places + 1, "0")
    text = f"{digits[: len(digits) - places]}.{digits[len(digits) - places :]}{suffix}"
    power = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}[suffix]
    exact = Fraction(number, 10**places) * Fraction(10) ** power
    quantity = parse_quantity(f"-{text}" if negative else text)
    for got, unit in ((quantity.nano, 9), (quantity.milli(), 3), (quantity.value(), 0)):
        scaled = exact * 10**unit
        assert 0 <= (-got if negative else got) - scaled < 1


@given(amounts, amounts)
def test_quantities_compare_as_numbers(one: int, two: int) -> None:
    assert (Quantity(one) < Quantity(two, Format.BINARY_SI)) == (one < two)
    assert (Quantity(one) == Quantity(one, Format.BINARY_SI)) is True
    assert (Quantity(one).value() <= Quantity(two).value()) or one > two


@given(label_sets, expressions, label_sets)
def test_selectors_agree_with_the_plain_reading(
    wanted: Mapping[str, str], listed: list[tuple[str, str, list[str]]], labels: Mapping[str, str]
) -> None:
    def holds(key: str, operator: str, values: list[str]) -> bool:
        # None stands for an absent label, which no list of values contains.
        value = labels.get(key)
        return {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }[operator]

    oracle = set(wanted.items()) <= set(labels.items()) and all(holds(*expression) for expression in listed)
    assert make_selector(wanted, listed).matches(labels) is oracle


@given(moments, st.integers(-23 * 60, 23 * 60))
def test_printed_times_parse_back(at: datetime, offset: int) -> None:
    assert parse_time(format_time(at)) == at
    try:
        text = format_time(at, timezone(timedelta(minutes=offset)))
    except OverflowError:  # the zone's clock would show year 0 or 10000
        assume(False)
    assert parse_time(text) == at


@given(moments, moments)
def test_relative_mirrors(one: datetime, two: datetime) -> None:
    forth, back = relative(one, two), relative(two, one)
    if forth == "now":
        assert back == "now"
        assert abs(one - two) < timedelta(seconds=1)
    elif one > two:
        assert back == forth.removeprefix("in ") + " ago"
    else:
        assert forth == back.removeprefix("in ") + " ago"
