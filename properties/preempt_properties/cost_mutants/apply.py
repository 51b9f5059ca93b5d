"""The cost model, to be mutated."""

from preempt_properties.mutants.apply import Package

COST = Package("preempt_spec.cost", methods=False)
