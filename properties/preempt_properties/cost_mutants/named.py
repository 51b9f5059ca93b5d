"""Mistakes that people make, each as a change of the shipped source."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from preempt_properties.mutants.operators import Mutant

#: Name, module, function, what is written (as `ast.unparse` writes it), what is written instead.
_NAMED = (
    ("one direction only", "swap", "swap_time", "return out + back", "return back"),
    ("bidirectional figure", "copies", "copy_time", "size / law.bandwidth", "size / (2 * law.bandwidth)"),
    ("factor 2 of a multiply-add dropped", "recompute", "gemm_flops", "2 * shape.params", "shape.params"),
    ("no attention", "recompute", "compute_time", "gemm + attention_flops", "gemm + 0 * attention_flops"),
    ("last token's length for the average", "recompute", "causal_pairs", "(length + cached) / 2", "(length + cached)"),
    ("hit scales the whole", "recompute", "causal_pairs", "(length + cached) / 2", "length / 2"),
    ("efficiencies swapped", "recompute", "gemm_rate", "device.gemm_efficiency", "device.attention_efficiency"),
    ("efficiency forgotten", "recompute", "attention_rate", " * device.attention_efficiency", ""),
    ("hit ignored by recompute", "decide", "recompute_cost", "cached(setting, length)", "0"),
    ("hit ignored by swap", "decide", "swap_cost", "cached(setting, length)", "0"),
    ("floor dropped", "recompute", "recompute_time", "max(weight_time(shape, device), work)", "work"),
    ("last token not computed", "recompute", "cached_tokens", "min(hit * length, length - 1)", "hit * length"),
    ("blocks round down", "swap", "whole_block_tokens", "round_up(tokens / block)", "(round_up(tokens / block) - 1)"),
    ("one block too many", "swap", "whole_block_tokens", "round_up(tokens / block)", "(round_up(tokens / block) + 1)"),
    ("padding ignored", "swap", "whole_block_tokens", "round_up(tokens / block)", "tokens / block"),
    ("replication dropped", "shape", "kv_heads_per_gpu", "round_up(kv_heads / ranks)", "kv_heads / ranks"),
    ("latent divided", "shape", "kv_elements", "return attention.latent", "return attention.latent / ranks"),
    ("K without V", "shape", "kv_elements", "(attention.key_dim + attention.value_dim)", "attention.key_dim"),
    ("overhead once, not per copy", "swap", "_pieces", "count * tensors, size / tensors", "count, size"),
    ("window ignored", "swap", "moved_tokens", "min(tokens, layers.window)", "tokens"),
    ("duplex adds up", "swap", "swap_time", "return max(out, back)", "return out + back"),
    ("write-through pays both ways", "swap", "crossings", "return 1", "return 2"),
    ("the cheaper mistaken for the dearer", "decide", "best_cost", "min(", "max("),
)


def named(functions: Mapping[tuple[str, str], ast.FunctionDef]) -> list[Mutant]:
    """The mistakes as mutants. Raises ValueError if one no longer fits the source: it must be written anew."""
    found = []
    for name, module, function, was, now in _NAMED:
        if (module, function) not in functions:
            raise ValueError(f"the mistake {name!r} needs the function {module}.{function}, which is not there")
        source = ast.unparse(functions[module, function])
        if source.count(was) != 1:
            times = source.count(was)
            raise ValueError(f"the mistake {name!r} needs {was!r} once in {module}.{function}: {times} times there")
        found.append(Mutant(module, function, was, now, 1, source.replace(was, now), name))
    return found
