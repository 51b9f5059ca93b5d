"""Swap or recompute? What bringing back a preempted request costs, in seconds, as plain functions.

Read in this order: `number` (what a number must be able to do: one function serves fractions, floats and a solver's
reals), `shape` (a model on one GPU), `recompute`, `copies` (how long one copy takes), `swap`, `spare` (decode steps
that have compute left over), `decide` (break-even, speed-up, regret), `lengths` (the lengths where recompute wins),
`hybrid`, `certify`, `fit` (copy laws and efficiencies from measurements), `checked` (refuses nonsense; the formulas
never look).

Everything is a total per request and per GPU. Bandwidths are bytes/s PER DIRECTION, never the bidirectional figure.
"""
