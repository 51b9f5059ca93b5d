"""preempt-properties: what is checked of the specification itself, and what it is checked with."""
