"""Changes that change nothing, each with the argument why. One that something kills must not stand here."""

_BEYOND = (
    "only adds fronts as long as the request or longer: such a division costs at least what recomputing all of it "
    "costs, which is a candidate"
)
_NEXT = (
    "end - 1 remains a candidate as meet - 1, meet being end where it matters; what is added is the first front of the "
    "next piece, or one as long as the request, which costs at least what recomputing all of it costs"
)
_CUT = "only adds a cut: of a piece in which the rest takes ever less, both parts are such pieces"
_ONE = "`one` is 1"

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
        "differs where both parts take equally long: a front of that time was the candidate at the meeting point, and "
        "is now the one before it"
    ),
    "hybrid.hybrid_split: end - 1 → end + 1": _NEXT,
    "hybrid.hybrid_split: end - 1 → end": _NEXT,
    "hybrid.hybrid_split: 1 → 0 #2": "the same as end - 1 → end",
    "hybrid._bounds: 1 → 2 #3": f"a size that the rest is below at once was no cut of its own: {_CUT}",
    "hybrid._bounds: last + 1 → last #2": f"where no front is found, the last one instead of the end: {_CUT}",
    "hybrid._bounds: 1 → 0 #4": "the same as last + 1 → last",
    "hybrid._bounds: 1 → 2 #4": (
        "a front of last + 1 steps leaves nothing to move but a constant state; if that alone reaches a size, a piece "
        "is added whose front is as long as the request, which costs at least what recomputing all of it costs"
    ),
    "lengths.recompute_lengths: k * one → k / one": _ONE,
    "lengths.recompute_lengths: k * one → k / one #2": _ONE,
    "lengths.recompute_lengths: k * one → k / one #3": _ONE,
    "lengths.recompute_lengths: k * one → k / one #4": _ONE,
    "number.round_up: math.ceil(x) + 0 * x → math.ceil(x) - 0 * x": "0 more is 0 less",
    "recompute.causal_pairs: 0 * length + cached → cached": (
        "the zero only makes a number of an int, and the int is next compared with and added to numbers"
    ),
    "swap.batches: 0 * length + 1 → 1": "the zero only makes a number of an int, which is next multiplied by one",
    "swap.batches: 0 * length + 1 → 1 #2": "the zero only makes a number of an int, which is next multiplied by one",
}
