"""The fields of a config.json, read one by one; whatever is wrong with one is said with its path."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from .errors import CostInputError, near, quoted

_HIGHEST: Final = 10**8  # no shape of a model is larger


class Fields:
    """An object of the file. Null means missing, as it does to those who write these files."""

    def __init__(self, data: Mapping[str, Any], where: str, path: str = "", outer: Fields | None = None) -> None:
        """`where` is the file, `path` leads to this object, which stands in `outer`."""
        self._data = data
        self._where = where
        self.path = path
        self._outer = outer

    def refuse(self, name: str, reason: str) -> CostInputError:
        """The error that blames field `name` of this object."""
        return CostInputError(self._where, f"{self.path}.{name}" if self.path else name, reason)

    def has(self, name: str) -> bool:
        """Whether the field is there, and not null."""
        return self._data.get(name) is not None

    def given(self, name: str) -> bool:
        """Whether the field is not null. It must be written: what its absence means is the default of a class."""
        if name not in self._data:
            raise self.refuse(name, self._absent(name))
        return self.has(name)

    def says(self, name: str, word: str) -> bool:
        """Whether the field is this string."""
        return bool(self._data.get(name) == word)

    def with_defaults(self, **defaults: int) -> Fields:
        """The same object, as if these fields had been written out where they are missing."""
        given = {name: value for name, value in self._data.items() if value is not None}
        return Fields({**defaults, **given}, self._where, self.path, self._outer)

    def count(self, name: str, default: int | None = None, low: int = 1, high: int = _HIGHEST) -> int:
        """A whole number in [low, high]; `default` if missing, which is an error without one."""
        value = self._data.get(name)
        if value is None:
            if default is None:
                raise self.refuse(name, self._absent(name))
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.refuse(name, f"is {quoted(value)}, not a whole number")
        if not low <= value <= high:
            raise self.refuse(name, f"is {quoted(value)}, not between {low} and {high}")
        return value

    def maybe(self, name: str, high: int = _HIGHEST) -> int | None:
        """A whole number from 1 on, or None if missing."""
        return self.count(name, high=high) if self.has(name) else None

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refuse(name, f"is {quoted(value)}, not true or false")
        return value

    def word(self, name: str, default: str | None = None) -> str:
        """A string."""
        value = self._data.get(name)
        if value is None:
            if default is None:
                raise self.refuse(name, self._absent(name))
            return default
        if not isinstance(value, str):
            raise self.refuse(name, f"is {quoted(value)}, not a string")
        return value

    def words(self, name: str, among: Collection[str], length: int) -> list[str] | None:
        """A list of `length` strings, each `among` the known ones; None if missing."""
        value = self._data.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != length:
            shown = f"a list of {len(value)}" if isinstance(value, list) else quoted(value)
            raise self.refuse(name, f"is {shown}, not a list of {length} (num_hidden_layers) strings")
        for i, entry in enumerate(value):
            if not isinstance(entry, str) or entry not in among:
                raise self.refuse(f"{name}[{i}]", f"is {quoted(entry)}, not one of {', '.join(sorted(among))}")
        return value

    def indices(self, name: str, below: int) -> set[int]:
        """A list of whole numbers in [0, below), as a set; empty if missing."""
        value = self._data.get(name)
        if value is None:
            return set()
        if not isinstance(value, list):
            raise self.refuse(name, f"is {quoted(value)}, not a list of layers")
        for i, entry in enumerate(value):
            if isinstance(entry, bool) or not isinstance(entry, int) or not 0 <= entry < below:
                raise self.refuse(f"{name}[{i}]", f"is {quoted(entry)}, not a layer from 0 to {below - 1}")
        return set(value)

    def part(self, name: str) -> Fields | None:
        """An object inside this one; None if missing."""
        value = self._data.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.refuse(name, f"is {quoted(value)}, not an object")
        return Fields(value, self._where, f"{self.path}.{name}" if self.path else name, self)

    def holder(self, name: str) -> Fields:
        """Where a field is that multimodal configs have inside or outside of text_config: inside wins."""
        return self._outer if self._outer is not None and not self.has(name) else self

    def unsupported(self, *names: str) -> None:
        """Refuse what would change the shape in a way that is not modelled: each field must be missing, false or 0."""
        for name in names:
            if value := self._data.get(name):
                raise self.refuse(name, f"is {quoted(value)}, which is not modelled")

    def _absent(self, name: str) -> str:
        if name in self._data:
            return "is null, and must be given"
        return f"is missing{near(name, [key for key in self._data if len(key) < 100], cutoff=0.75)}"
