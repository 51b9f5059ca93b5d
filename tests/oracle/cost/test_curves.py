"""A user's measured curve: CSV with units in the heading -> points and laws; refused by line and column."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preempt_oracle.cost import curves
from preempt_oracle.cost.errors import CostInputError
from preempt_spec.cost.copies import Tabulated
from preempt_spec.cost.fit import Point, fit_affine

BOTH = """\
# measured on Tuesday
size [KiB], bandwidth [GB/s], direction

4, 0.92, out
8, 2.2, d2h
4, 1.21, back
8, 2.32, H2D
"""


def decoded(text: str) -> curves.CopyCurve:
    return curves.decode(text.encode(), "my.csv")


def test_directions_have_a_curve_each():
    curve = decoded(BOTH)
    assert curve.out is not None
    assert curve.back is not None
    assert [p.size for p in curve.out] == [4096, 8192]
    assert curve.out[1].seconds == Fraction(8192, 2_200_000_000)
    assert curve.back[0].seconds == Fraction(4096, 1_210_000_000)
    assert curve.out[0].shortest == curve.out[0].longest == curve.out[0].seconds
    assert curve.assumes == ""


def test_without_directions_the_curve_holds_for_both():
    curve = decoded("time (us),size (B)\n5,1000\n6,2000\n")
    assert curve.out == curve.back
    assert curve.assumes == ""
    law = Tabulated((Fraction(1000), Fraction(2000)), (Fraction(5, 10**6), Fraction(6, 10**6)))
    assert curve.laws() == (law, law)


def test_one_direction_stands_for_the_other_and_says_so():
    curve = decoded("size[KiB],time[us],direction\n4,5,out\n8,6,out\n")
    assert curve.back is None
    assert curve.laws()[0] == curve.laws()[1]
    assert "host to device was not measured" in curve.assumes


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("size[B],bandwidth[B/s],error[B/s]\n10,10,5\n20,15,5\n", (1, Fraction(2, 3), 2)),
        ("size[B],bandwidth[B/s],error[%]\n10,10,50\n20,15,10\n", (1, Fraction(2, 3), 2)),
        ("size[B],time[s],error[ms]\n10,1,500\n20,2,0\n", (1, Fraction(1, 2), Fraction(3, 2))),
    ],
)
def test_errors_of_measurement(text, point):
    out = decoded(text).out
    assert out is not None
    assert out[0] == Point(Fraction(10), *map(Fraction, point))


def test_excel_and_windows_write_it_their_way():
    text = '\ufeff"size [KiB]","bandwidth [GB/s]"\r\n"4","0.92"\r\n"8","2.2"\r\n'
    out = curves.decode(text.encode(), "my.csv").out
    assert out is not None
    assert len(out) == 2


def test_a_curve_can_be_fitted():
    lines = "\n".join(f"{2**i},{5000 + 2**i * 20}" for i in range(12))
    out = decoded(f"size [kB],time [ns]\n{lines}\n").out
    assert out is not None
    law = fit_affine(out).law
    assert law.overhead == Fraction(5, 10**6)
    assert law.bandwidth == 50 * 10**9


def test_a_file_is_read(tmp_path: Path):
    path = tmp_path / "my.csv"
    path.write_text(BOTH)
    assert curves.read(path).id == str(path)
    for missing in (tmp_path, tmp_path / "none.csv", Path("a\0b")):
        with pytest.raises(CostInputError, match="cannot be read"):
            curves.read(missing)


HEAD = "size [KiB],bandwidth [GB/s]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "my.csv: is empty; a heading such as"),
        ("# only a comment\n", "my.csv: is empty"),
        (HEAD, "my.csv: size: has fewer than 2 sizes"),
        (HEAD + "4,1\n", "my.csv: size: has fewer than 2 sizes"),
        ("4,1\n8,2\n", "my.csv:1: '4' is no known column; known: size, bandwidth"),
        ("sise [KiB],bandwidth [GB/s]\n", "my.csv:1: 'sise [KiB]' is no known column; did you mean size"),
        ("size,bandwidth [GB/s]\n", "my.csv:1: size: has no unit; write it into the heading, such as size [KiB]"),
        ("size [GB/s],bandwidth [GB/s]\n", "my.csv:1: size: has the unit 'GB/s'"),
        ("size [KiB],bandwidth [KiB]\n", "my.csv:1: bandwidth: has the unit 'KiB'"),
        ("size [KB],bandwidth [GB/s]\n", "my.csv:1: size: has the unit 'KB'"),
        ("size [KiB]\n", "my.csv:1: bandwidth: and time: exactly one"),
        ("size [KiB],bandwidth [GB/s],time [us]\n", "my.csv:1: bandwidth: and time: exactly one"),
        ("size [KiB],size [B],time [us]\n", "my.csv:1: size: is there twice"),
        ("bandwidth [GB/s]\n", "my.csv:1: size: is missing"),
        ("size [KiB],time [us],error [GB/s]\n", "my.csv:1: error: is a bandwidth, but the curve measures a time"),
        (HEAD + "4\n", "my.csv:2: has 1 cells, the heading 2"),
        (HEAD + "4,1,2\n", "my.csv:2: has 3 cells, the heading 2"),
        (HEAD + "4,1\n4,2\n", "my.csv:3: size: is not above the size before it: sizes must grow"),
        (HEAD + "8,1\n\n4,2\n", "my.csv:4: size: is not above the size before it"),
        (HEAD + "4,\n", "my.csv:2: bandwidth: is empty"),
        (HEAD + "4,nan\n", "my.csv:2: bandwidth: 'nan' is not a plain number"),
        (HEAD + "4,-1\n", "my.csv:2: bandwidth: '-1GB/s' is negative"),
        (HEAD + "4,0\n", "my.csv:2: bandwidth: '0GB/s' is zero"),
        (HEAD + "0,1\n", "my.csv:2: size: '0KiB' is zero"),
        (HEAD + "4,1e999999\n", "my.csv:2: bandwidth: '1e999999GB/s' has an exponent beyond"),
        (HEAD + "4KiB,1\n", "my.csv:2: size: '4KiB' is not a plain number (the heading gives the unit KiB)"),
        (HEAD + '"4,1\n8,2\n', "my.csv:2: is not CSV"),
        (HEAD + "4;1\n", "my.csv:2: has 1 cells"),
        ("size [KiB],time [us],direction\n4,5,up\n", "my.csv:2: direction: 'up' is not one of out, d2h"),
        ("size [KiB],time [us],direction\n4,5,out\n8,6,out\n4,5,in\n", "fewer than 2 sizes in a direction"),
        ("size [KiB],time [us],direction\n4,5,out\n4,6,out\n", "before it of direction out"),
        ("size [KiB],time [us],error [us]\n4,5,5\n", "my.csv:2: error: is not below the time itself"),
        (HEAD + "4,\x1b[31m1\n", "\\x1b[31m1"),
        (HEAD + "1,1\n" * 10_001, "my.csv:3: size: is not above"),
        ("#" * (1 << 20) + "\n", "my.csv: is larger than"),
    ],
)
def test_refused_by_line_and_column(text, message):
    with pytest.raises(CostInputError) as error:
        decoded(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert "\x1b" not in str(error.value)


def test_too_many_lines_are_refused():
    with pytest.raises(CostInputError, match="has more than 10000 lines"):
        decoded(HEAD + "".join(f"{i},1\n" for i in range(1, 10_002)))


def test_binary_is_refused():
    with pytest.raises(CostInputError, match="is not UTF-8"):
        curves.decode(b"\xff\xfe\x00", "my.csv")


_CELLS = st.sampled_from(
    ["4", "8", "1e3", "0.92", "size [KiB]", "time [us]", "bandwidth [GB/s]", "out", "in", '"', "#"]
)


@given(st.lists(st.lists(_CELLS | st.text(max_size=5), max_size=4).map(",".join), max_size=6).map("\n".join))
def test_any_text_is_a_curve_or_refused(text):
    try:
        curve = decoded(text)
    except CostInputError as error:
        assert str(error).startswith("my.csv")  # noqa: PT017
    else:
        assert len(curve.out or curve.back or ()) >= 2


@given(st.lists(st.tuples(st.integers(1, 2**40), st.integers(1, 10**9)), min_size=2, unique_by=lambda p: p[0]))
def test_every_growing_table_is_read_as_it_stands(pairs):
    pairs.sort()
    out = decoded("size [B],time [ns]\n" + "\n".join(f"{size},{ns}" for size, ns in pairs)).out
    assert out is not None
    assert [(p.size, p.seconds * 10**9) for p in out] == pairs
