"""A proof must notice a change of the code: mutants of every cost function, and what kills each.

    python -m preempt_properties.cost_mutants

A mutant that is alive, or an argument in `equivalent` that no mutant needs, is exit 1.
"""
