"""Mutation testing, whatever is mutated: small changes of source, put in place in a fork, hunted by what is given.

`cost_mutants` changes the cost model, `preempt_oracle.rule_mutants` the rules and the monitor.
"""
