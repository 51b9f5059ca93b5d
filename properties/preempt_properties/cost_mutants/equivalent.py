"""Changes that change nothing, each with the argument why. One that something kills must not stand here."""

_BEYOND = (
    "adds fronts as long as the request or longer: such a division costs at least what recomputing all of it costs, "
    "which is a candidate before it; and where the last front is no longer one, loading nothing takes longer than that"
)
_NEXT = (
    "end - 1 remains a candidate as meet - 1, meet being end where it matters; what is added is the first front of the "
    "next piece, or one as long as the request, which costs at least what recomputing all of it costs"
)
_CUT = "only adds a cut: of a piece in which the rest takes ever less, both parts are such pieces"
_CUT_2 = "what is added is a cut: of a piece with a monotone slope, both parts have one"
_ONE = "`one` is 1"
_ZERO = "the zero only makes a number of an int, which is next multiplied by a number"

EQUIVALENT: dict[str, str] = {
    "copies._interpolated: size < sizes[0] → size <= sizes[0]": (
        "at the first point the line that begins there gives its time too"
    ),
    "copies._interpolated: 1 → 0": "the added turn of the loop asks what has just been answered: not below sizes[0]",
    "fit.nearest_affine: overhead < 0 → overhead <= 0": (
        "if the nearest law of both terms has no overhead, it is the nearest of those without, which is the only one"
    ),
    "hybrid.hybrid_split: math.ceil(length / step) - 1 → math.ceil(length / step) + 1": _BEYOND,
    "hybrid.hybrid_split: math.ceil(length / step) - 1 → math.ceil(length / step)": _BEYOND,
    "hybrid.hybrid_split: length / step → length * step": f"a step is a token or more, so it {_BEYOND}",
    "hybrid.hybrid_split: 1 → 0": _BEYOND,
    "hybrid.hybrid_split: recompute_front(setting, k * step) >= swap_rest(setting, length, k * step) → "
    "recompute_front(setting, k * step) > swap_rest(setting, length, k * step)": (
        "differs where both parts take equally long: the front of that time was the candidate at the meeting point, "
        "and is now the one before it; the one after it takes no less, and of equals the shorter front is taken"
    ),
    "hybrid.hybrid_split: end - 1 → end + 1": _NEXT,
    "hybrid.hybrid_split: end - 1 → end": _NEXT,
    "hybrid.hybrid_split: 1 → 0 #2": "the same as end - 1 → end",
    "hybrid._bounds: 1 → 2 #3": (
        f"a size that the rest is below at once was no cut of its own: {_CUT}; of a request of a single step, it "
        f"{_BEYOND}"
    ),
    "hybrid._bounds: last + 1 → last #2": f"where no front is found, the last one instead of the end: {_CUT}",
    "hybrid._bounds: 1 → 0 #4": "the same as last + 1 → last",
    "hybrid._bounds: 1 → 2 #4": (
        "a front of last + 1 steps leaves nothing to move but a constant state; if that alone reaches a size, a piece "
        "is added whose front is as long as the request, which costs at least what recomputing all of it costs"
    ),
    "lengths._bounds: 1 → 0 #7": "a bend at or below 1 is a cut at 1, where there is one",
    "lengths._bounds: k * one → k / one": _ONE,
    "lengths._bounds: k * one → k / one #2": _ONE,
    "lengths._bounds: 1 → 2 #8": f"a size that is reached at once was no cut of its own: {_CUT_2}",
    "lengths._bounds: longest + 1 → longest - 1 #2": (
        "a size reached at the last length, or never, cuts one before it: a piece of two lengths has a single slope, "
        "and of a piece with a monotone slope, a part has one"
    ),
    "lengths._bounds: longest + 1 → longest #2": f"a size that is not reached: the last length for the end; {_CUT_2}",
    "lengths._bounds: 1 → 0 #9": "the same as longest + 1 → longest",
    "lengths._positive: turn + 1 → turn": "the turn belongs to both parts, whose spans are joined",
    "lengths._positive: 1 → 0 #2": "the same as turn + 1 → turn",
    "lengths._turn: 2 → 1": "of two lengths, the search among none says the last too",
    "lengths._turn: f(first + 1) > f(first) → f(first + 1) >= f(first)": (
        "differs where the piece begins flat: taken for rising, either it falls and is cut there, or it never falls "
        "and is as good as rising wherever it is cut"
    ),
    "lengths._turn: f(k + 1) > f(k) → f(k + 1) >= f(k)": (
        "differs where the piece is flat: what is flat may belong to the part that rises or to the one that falls"
    ),
    "lengths._turn: first + 1 → first - 1 #2": (
        "at `first` the slope is that at `first`, so the search goes on behind it and never comes to what is before"
    ),
    "lengths._turn: first + 1 → first #2": "at `first` the slope is that at `first`: the search goes on behind it",
    "lengths._turn: 1 → 0 #3": "the same as first + 1 → first",
    "lengths.recompute_lengths: k * one → k / one": _ONE,
    "lengths.recompute_lengths: k * one → k / one #2": _ONE,
    "lengths.recompute_lengths: k * one → k / one #3": _ONE,
    "lengths.recompute_lengths: k * one → k / one #4": _ONE,
    "number.round_up: math.ceil(x) + 0 * x → math.ceil(x) - 0 * x": "0 more is 0 less",
    "recompute.causal_pairs: 0 * length + cached → cached": (
        "the zero only makes a number of an int, and the int is next compared with and added to numbers"
    ),
    "swap.batches: 0 * length + 1 → 1": _ZERO,
    "swap.batches: 0 * length + 1 → 1 #2": _ZERO,
}
