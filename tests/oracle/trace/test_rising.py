"""One more for each number of a text, without reading the numbers."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from preempt_oracle.trace.rising import Rising

NUMBERS = st.integers(0, 10**19) | st.sampled_from([8, 9, 10, 98, 99, 198, 199, 998, 9999, 18999])


def text(numbers: list[int]) -> bytes:
    return b",".join(b"%d" % n for n in numbers)


@settings(max_examples=500, derandomize=True)
@given(st.lists(NUMBERS, min_size=1, max_size=70))
@example([9])
@example([99, 5])
@example([5, 99])
@example([0])
def test_each_number_is_one_more_until_one_needs_another_digit(numbers: list[int]):
    rising = Rising(text(numbers))
    for more in range(1, 13):
        wanted = text([n + more for n in numbers])
        if len(wanted) > len(text(numbers)):
            assert not rising.rise()
            break
        assert rising.rise()
        assert rising.text == wanted
