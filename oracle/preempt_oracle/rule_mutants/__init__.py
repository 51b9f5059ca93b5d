"""Testing the tester: every small change of a rule's clauses or of the monitor must be noticed by something.

    python -m preempt_oracle.rule_mutants [--sample N] [--write] [NAME…]

What notices it: a known-bad scheduler that is no longer named by its rule, one that is right and is accused, a shipped
trace that comes out otherwise, an exercise count that is not the kept one, a monitor that differs from the pure
system, or a test. A mutant that is alive and not argued for in `argued.toml`, or an argument that no mutant needs, is
exit 1.
"""
