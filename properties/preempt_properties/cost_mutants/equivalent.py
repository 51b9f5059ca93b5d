"""Changes that change nothing, each with the argument why. One that something kills must not stand here."""

EQUIVALENT: dict[str, str] = {}
