"""Data of the cost model: quantities with units, models, accelerators, links, curves. The formulas are in spec."""
