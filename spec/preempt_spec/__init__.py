"""preempt-spec: what a KV-cache preemption must do, as a transition system that can be run.

Read in this order: `events` (what can be seen), `state` (what we remember), `rules` (what must hold), `system`
(`check` and `apply`), `policies` (where engines may differ), `reference` (a scheduler made of nothing else).
"""

from collections.abc import Mapping

from attrs import field, frozen


class UnknownVersion(ValueError):
    """There is no such version of the specification. The message names those there are."""


@frozen
class Release:
    """A version of the specification: MAJOR.MINOR. Which rules came in with it they say themselves (`Rule.since`)."""

    version: str
    #: Rule id -> what its wording says since this version that it did not say before, and why.
    reworded: Mapping[str, str] = field(factory=dict, hash=False)

    @property
    def number(self) -> tuple[int, int]:
        """For comparing: 1.10 comes after 1.9."""
        major, minor = self.version.split(".")
        return int(major), int(minor)


#: Every version, oldest first. A rule whose sentence changes, or whose clauses mean something else, is listed here
#: under the version that brings it; a new rule is not (it has `since`). Tests hold both to the sentences published.
HISTORY: tuple[Release, ...] = (
    Release("0.1"),
    Release(
        "1.0",
        reworded={
            "victim/reset": "a swapped victim keeps its computed tokens, all of them or none: there is a host tier now",
            "output/stream": "outputs of several frames in flight: each must stand behind the token it was sampled "
            "behind; who is owed an output, and whether it comes once, is frame/once now; what is dropped is not shown",
            "live/progress": "an empty step while a frame or a copy flies, or while paused, is no idleness",
            "pool/conserve": "blocks that a copy in flight fills are not free, even when their owner is gone",
            "victim/duty": "a reset is a trigger too",
            "resume/hit": "without a cache and without host copies an admission starts at nothing",
            "queue/one-place": "swapped and loading are places, and so is limbo where the profile declares it",
            "queue/front": "whose KV the host holds re-enters by the swapped queue",
            "resume/provenance": "groups with a sliding window and with a recurrent state have their own needs",
        },
    ),
)

#: Version of the specification (the rules and what they mean), apart from the version of the package.
SPEC_VERSION = HISTORY[-1].version


def release(version: str) -> Release:
    """The release of that version. Raises UnknownVersion."""
    for known in HISTORY:
        if known.version == version:
            return known
    known_ones = ", ".join(r.version for r in HISTORY)
    raise UnknownVersion(f"the specification has no version {version!r}; it has {known_ones}")
