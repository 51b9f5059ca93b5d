"""preempt-spec: what a KV-cache preemption must do, as a transition system that can be run.

Read in this order: `events` (what can be seen), `state` (what we remember), `rules` (what must hold), `system`
(`check` and `apply`), `policies` (where engines may differ), `reference` (a scheduler made of nothing else).
"""

#: Version of the specification (the rules and what they mean), apart from the version of the package.
SPEC_VERSION = "0.1"
