"""What a slip of the pen makes of a formula."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from preempt_properties.mutants.operators import arithmetic, both_ways, confused

#: Names that somebody could confuse.
_CONFUSED = (
    ("max", "min"),
    ("round_up", "round_down"),
    ("ceil", "floor"),
    ("gemm_efficiency", "attention_efficiency"),
    ("gemm_rate", "attention_rate"),
    ("out", "back"),
    ("heads", "kv_heads"),
    ("key_dim", "value_dim"),
    ("params_active", "params_total"),
    ("kv_bytes", "pair_flops"),
    ("small", "large"),
    ("swap_cost", "recompute_cost"),
    ("kv_width", "weight_width"),
    ("any", "all"),
)
_OTHER = both_ways(_CONFUSED)
#: A parameter of many functions whose default, 0, is a mistake of its own: the prefix hit is ignored.
_IGNORABLE = "cached"


def changes(node: ast.expr, called: bool) -> Iterator[ast.expr]:
    """The changes of an expression."""
    yield from arithmetic(node)
    match node:
        case ast.Name(id) if id == _IGNORABLE and not called:
            yield ast.Constant(0)
        case _:
            yield from confused(node, _OTHER)
