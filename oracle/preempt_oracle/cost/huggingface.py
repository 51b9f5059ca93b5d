"""A local Hugging Face `config.json` -> `Model`, or an error that names the file and the field.

Only what is understood is used: a model type outside the table, a field that changes the shape in a way that is not
modelled, or two fields that contradict each other are refused, never guessed at. Nothing is fetched.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from .config_fields import Fields
from .errors import CostInputError, near, quoted
from .facts import Model
from .families import FAMILIES
from .families_hybrid import HYBRIDS

_LARGEST: Final = 1 << 20  # bytes; real ones have a few KiB
_KNOWN: Final = FAMILIES | HYBRIDS

#: Multimodal model types, whose language model is described by the object text_config, and the type of that if it
#: does not say so itself.
_WRAPPERS: Final = {
    "gemma3": "gemma3_text",
    "kimi_k25": None,
    "mistral3": None,
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
}

MODEL_TYPES: Final = tuple(sorted(_KNOWN.keys() | _WRAPPERS.keys()))


def read(path: Path) -> Model:
    """The model that the file at `path` describes; a folder means its config.json. Raises CostInputError."""
    where = str(path)
    try:
        if path.is_dir():
            path = path / "config.json"
            where = str(path)
        with path.open("rb") as file:
            raw = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise CostInputError(where, "", f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return decode(raw, where)


def decode(raw: bytes, where: str) -> Model:
    """The model that these bytes of a config.json describe; `where` names them in errors. Raises CostInputError."""
    fields = Fields(_object(raw, where), where)
    kind = fields.word("model_type")
    if kind in _WRAPPERS:
        text = fields.part("text_config")
        if text is None:
            raise fields.refuse("text_config", f"is missing; a {kind} model describes its language model there")
        fields, kind = text, text.word("model_type", _WRAPPERS[kind])
    family = _KNOWN.get(kind)
    if family is None:
        hint = near(kind, list(MODEL_TYPES), cutoff=0.75) or f"; known: {', '.join(MODEL_TYPES)}"
        raise fields.refuse("model_type", f"is {quoted(kind)}, which is not known here{hint}")
    return family(fields)


def _object(raw: bytes, where: str) -> dict[str, Any]:
    if len(raw) > _LARGEST:
        raise CostInputError(where, "", f"is larger than {_LARGEST} bytes; a config.json has a few thousand")
    try:
        data = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_unique, parse_int=_whole)
    except _Duplicate as error:
        raise CostInputError(where, str(error), "is there twice") from None
    except UnicodeDecodeError:
        raise CostInputError(where, "", "is not UTF-8 text") from None
    except RecursionError:
        raise CostInputError(where, "", "is nested too deeply") from None
    except ValueError as error:
        raise CostInputError(where, "", f"is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise CostInputError(where, "", "is not a JSON object")
    return data


class _Duplicate(Exception):
    """A key that an object has twice."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Duplicate(key)
            seen.add(key)
    return made


def _whole(digits: str) -> int | float:
    # Python refuses thousands of digits at once, with an error that could not name the field; no field takes a float.
    return int(digits) if len(digits) < 40 else float("inf")
