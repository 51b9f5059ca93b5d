"""Shipped traces of real schedulers, and hand-broken copies of them.

`traces/` were recorded from live vLLM, one per scenario of `scenarios/` and version; `broken/` are copies of them in
which one thing was changed by hand, each of which breaks exactly one rule. `vectors.toml` says of every file what it
shows and how it must come out. `python -m preempt_oracle.vectors.make` makes all three from the scenarios and `edits`.
"""
