"""Quantities with units: read exactly, written so that they read the same, refused with the reason."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preempt_oracle.cost.errors import CostInputError
from preempt_oracle.cost.quantities import exact, parse, show
from preempt_oracle.cost.units import (
    BANDWIDTH,
    BYTES,
    COUNT,
    DIMENSIONS,
    FLOP_RATE,
    SECONDS,
    SHARE,
    TOKENS,
    Dimension,
)

KI = 1024


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("50GB/s", BANDWIDTH, 50 * 10**9),
        ("7.5 GiB/s", BANDWIDTH, Fraction(15, 2) * KI**3),
        ("400Gbit/s", BANDWIDTH, 50 * 10**9),
        ("400Gb/s", BANDWIDTH, 50 * 10**9),
        ("400 Gbps", BANDWIDTH, 50 * 10**9),
        ("3.35TB/s", BANDWIDTH, 3350 * 10**9),
        ("32KiB", BYTES, 32 * KI),
        ("  32 KiB  ", BYTES, 32 * KI),
        ("1.5kB", BYTES, 1500),
        (".5MiB", BYTES, KI**2 // 2),
        ("5us", SECONDS, Fraction(5, 10**6)),
        ("5\N{MICRO SIGN}s", SECONDS, Fraction(5, 10**6)),
        ("5\N{GREEK SMALL LETTER MU}s", SECONDS, Fraction(5, 10**6)),
        ("16384/3125us", SECONDS, Fraction(16384, 3125 * 10**6)),
        ("1e-3s", SECONDS, Fraction(1, 1000)),
        ("989TFLOP/s", FLOP_RATE, 989 * 10**12),
        ("1.979 PFLOPS", FLOP_RATE, 1979 * 10**12),
        ("4096", TOKENS, 4096),
        ("64k", TOKENS, 64_000),
        ("64Ki", TOKENS, 65_536),
        ("1.5k tokens", TOKENS, None),
        ("100 tokens", TOKENS, 100),
        ("1.5k", TOKENS, 1500),
        ("+4", COUNT, 4),
        ("0.5", SHARE, Fraction(1, 2)),
        ("50%", SHARE, Fraction(1, 2)),
        ("1/3", SHARE, Fraction(1, 3)),
        ("0.1", SHARE, Fraction(1, 10)),
    ],
)
def test_read(text, dimension, value):
    if value is None:
        with pytest.raises(CostInputError):
            parse(text, dimension, "--x")
    else:
        assert parse(text, dimension, "--x") == value


@pytest.mark.parametrize(
    ("text", "dimension", "reason"),
    [
        ("", BANDWIDTH, "is empty"),
        ("   ", BANDWIDTH, "is empty"),
        ("50", BANDWIDTH, "has no unit"),
        ("GB/s", BANDWIDTH, "does not start with a number"),
        ("32KiB", BANDWIDTH, "is a size, not a bandwidth"),
        ("5us", BANDWIDTH, "is a time, not a bandwidth"),
        ("4096 tokens", BANDWIDTH, "is a number of tokens, not a bandwidth"),
        ("989TFLOP/s", BYTES, "is a rate of computation, not a size"),
        ("50%", TOKENS, "is a share between 0 and 1, not a number of tokens"),
        ("50gb/s", BANDWIDTH, "upper and lower case matter, GB/s or Gb/s"),
        ("32kib", BYTES, "upper and lower case matter, KiB"),
        ("50GB/s/s", BANDWIDTH, "unknown unit 'GB/s/s'"),
        ("5 furlongs", SECONDS, "unknown unit 'furlongs'"),
        ("32KB", BYTES, "write KiB (1024 bytes) or kB (1000)"),
        ("32K", BYTES, "write KiB or kB"),
        ("64K", TOKENS, "write k or Ki"),
        ("50TFLOPs", FLOP_RATE, "write TFLOP/s"),
        ("nan", SECONDS, "is not a finite number"),
        ("NaNs", SECONDS, "is not a finite number"),
        ("inf", SHARE, "is not a finite number"),
        ("-Infinity", SHARE, "is not a finite number"),
        ("-5us", SECONDS, "is negative"),
        ("\N{MINUS SIGN}5us", SECONDS, "is negative"),
        ("0GB/s", BANDWIDTH, "is zero"),
        ("0/3", SHARE, "is zero"),
        ("1/0", SHARE, "divides by zero"),
        ("1.5/2", SHARE, "not a ratio of two whole numbers"),
        ("4,096", TOKENS, "without separators"),
        ("4_096", TOKENS, "without separators"),
        ("1.2.3", SHARE, "without separators"),
        ("0x10", TOKENS, "unknown unit 'x10'"),
        ("\N{ARABIC-INDIC DIGIT FOUR}GB/s", BANDWIDTH, "digits other than 0 to 9"),
        ("4\N{ARABIC-INDIC DIGIT FOUR}GB/s", BANDWIDTH, "without separators"),
        ("\N{SUPERSCRIPT TWO}s", SECONDS, "digits other than 0 to 9"),
        ("0.5", TOKENS, "is not whole"),
        ("2.5", COUNT, "is not whole"),
        ("120%", SHARE, "is more than 1"),
        ("1.0001", SHARE, "is more than 1"),
        ("1e30B/s", BANDWIDTH, "is more than 1000PB/s"),
        ("1e-30s", SECONDS, "is less than"),
        ("1e999999s", SECONDS, "exponent beyond"),
        ("1e-999999999999999999999s", SECONDS, "exponent beyond"),
        ("9" * 100 + "s", SECONDS, "more than 90 digits"),
        ("9" * 100_000, SECONDS, "longer than 200 characters"),
        ("5\x1b[31ms", SECONDS, "\\x1b"),
    ],
)
def test_refused(text, dimension, reason):
    started = time.monotonic()
    with pytest.raises(CostInputError) as error:
        parse(text, dimension, "--bandwidth")
    assert time.monotonic() - started < 1
    message = str(error.value)
    assert message.startswith("--bandwidth: ")
    assert reason in message
    assert dimension.example in message
    assert "\x1b" not in message
    assert len(message) < 700


def test_the_message_names_option_units_and_an_example():
    with pytest.raises(CostInputError) as error:
        parse("32KiB", BANDWIDTH, "--bandwidth")
    assert str(error.value) == (
        "--bandwidth: '32KiB' is a size, not a bandwidth; a bandwidth (units: B/s, MB/s, GB/s, TB/s, MiB/s, GiB/s, "
        "Mbit/s, Gbit/s) is expected, such as 50GB/s"
    )


def test_zero_where_it_is_allowed():
    assert parse("0us", SECONDS, "--copy-overhead", zero=True) == 0
    assert parse("0%", SHARE, "--hit", zero=True) == 0


@pytest.mark.parametrize("dimension", DIMENSIONS, ids=lambda d: d.name)
def test_every_example_and_listed_unit_is_one(dimension):
    for example in dimension.example.split(" or "):
        assert parse(example, dimension, "--x") > 0
    for unit in dimension.listed.replace(" (1000)", "").replace(" (1024)", "").replace(" or ", ", ").split(", "):
        assert unit == "none" or unit in dimension.units
    assert not dimension.hints.keys() & dimension.units.keys()
    assert dimension.units[dimension.base] == 1


@st.composite
def quantities(draw: st.DrawFn) -> tuple[Dimension, Fraction]:
    dimension = draw(st.sampled_from(DIMENSIONS))
    if dimension.whole:
        return dimension, Fraction(draw(st.integers(1, int(dimension.most))))
    value = Fraction(draw(st.integers(1, 10**24)), draw(st.integers(1, 10**24)))
    return dimension, min(max(value, dimension.least), dimension.most)


@given(quantities())
def test_what_is_written_exactly_reads_the_same(quantity):
    dimension, value = quantity
    text = exact(value, dimension)
    assert text.isascii()
    assert parse(text, dimension, "--x") == value


@given(quantities(), st.integers(2, 12))
def test_what_is_shown_reads_as_nearly_the_same_and_is_shown_the_same(quantity, digits):
    dimension, value = quantity
    text = show(value, dimension, digits)
    try:
        read = parse(text, dimension, "--x")
    except CostInputError:  # rounded over the edge of what is allowed
        assert value > dimension.most * Fraction(9, 10) or value < dimension.least * 2
        return
    assert abs(read - value) <= value * Fraction(10) ** (1 - digits) / 2 or dimension.whole
    assert show(read, dimension, digits) == text


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (Fraction(0), SECONDS, "0ns"),
        (Fraction(32768), BYTES, "32KiB"),
        (Fraction(80 * KI**3), BYTES, "80GiB"),
        (Fraction(131_073), BYTES, "131.1kB"),
        (Fraction(999_960_000_000), BANDWIDTH, "1TB/s"),
        (Fraction(506_368_000, 66_928_679) * 10**9, BANDWIDTH, "7.566GB/s"),
        (Fraction(16384, 3125 * 10**6), SECONDS, "5.243\N{MICRO SIGN}s"),
        (Fraction(989 * 10**12), FLOP_RATE, "989TFLOP/s"),
        (Fraction(6236096, 100), TOKENS, "62361"),
        (Fraction(3485, 10000), SHARE, "34.85%"),
        (Fraction(1, 3), SHARE, "33.33%"),
    ],
)
def test_shown_for_people(value, dimension, text):
    assert show(value, dimension) == text


@given(st.text(max_size=12) | st.from_regex(r"[-+]?[0-9]{0,3}[.,/]?[0-9]{0,3}([eE][-+]?[0-9]{1,6})?[a-zA-Z/%]{0,6}"))
def test_any_text_is_a_quantity_within_bounds_or_refused(text):
    for dimension in DIMENSIONS:
        try:
            value = parse(text, dimension, "--x", zero=True)
        except CostInputError as error:
            assert str(error).startswith("--x: ")  # noqa: PT017
        else:
            assert 0 <= value <= dimension.most
