"""What a user asks of the cost model, as text from the command line -> a `Setting`, and the assumptions that went in.

Every option that is left out is filled in with something that is then said: nothing is assumed silently.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Final, TypeVar

from attrs import evolve, frozen

from preempt_spec.cost.checked import check_length, check_ranks, checked
from preempt_spec.cost.decide import Setting, cached
from preempt_spec.cost.recompute import Device, Run
from preempt_spec.cost.shape import Shape, shape_of
from preempt_spec.cost.swap import Batch, Directions, Hit, Transfer, Trip, batches, moved_bytes

from .copying import CopyPath, copy_path
from .errors import CostInputError
from .quantities import parse
from .registry import Accelerator, KnownModel, find_accelerator, find_model
from .units import BYTES, COUNT, FLOP_RATE, SHARE, TOKENS
from .wording import show

V = TypeVar("V")

#: Bytes per element of the KV cache. Scales of quantised formats are left out.
KV_WIDTHS: Final = {
    "fp32": Fraction(4),
    "bf16": Fraction(2),
    "fp16": Fraction(2),
    "fp8": Fraction(1),
    "int8": Fraction(1),
    "fp4": Fraction(1, 2),
    "int4": Fraction(1, 2),
}
HALF: Final = Fraction(1, 2)
NO_CACHE: Final = "no prefix cache: every token is computed again (--hit)"


@frozen(kw_only=True)
class Given:
    """The options that describe a setting, as text; None: not given."""

    accelerator: str
    bandwidth: str | None = None
    copy_overhead: str | None = None
    copy_size: str | None = None
    curve: str | None = None
    tp: str | None = None
    kv_dtype: str = "bf16"
    compute_dtype: str = "bf16"
    block: str = "16"
    hit: str | None = None
    hit_bytes: str | None = None
    write_through: bool = False
    duplex: bool = False
    mfu: str | None = None
    mfu_gemm: str | None = None
    mfu_attention: str | None = None
    alone: bool = False
    piggy_back: bool = False


@frozen
class Question:
    """A model on an accelerator, with everything that the cost functions need."""

    model: KnownModel
    accelerator: Accelerator
    ranks: Fraction
    kv_dtype: str
    setting: Setting[Fraction]
    path: CopyPath
    assumptions: tuple[str, ...]
    """Sentences without a full stop, the most consequential first."""

    def length(self, text: str, where: str = "--context") -> Fraction:
        """A length in tokens that the model can have. Raises CostInputError."""
        tokens = parse(text, TOKENS, where)
        return blamed(where, lambda: check_length(tokens, self.model.architecture.max_length))

    @property
    def longest(self) -> int:
        """The longest request, in tokens: the model's context; if that is not known, a million."""
        known = self.model.architecture.max_length
        return 10**6 if known is None else int(known)


def blamed(where: str, check: Callable[[], V]) -> V:
    """The value of `check`; what the core refuses, it refuses in the name of an option."""
    try:
        return check()
    except ValueError as error:
        # "ranks: 3 do not divide …": the option stands for the field.
        raise CostInputError(where, "", str(error).partition(": ")[2]) from None


def together(**options: object) -> list[str]:
    """The names of those options that are given."""
    return [f"--{name.replace('_', '-')}" for name, value in options.items() if value]


def exclusive(**options: object) -> None:
    """Refuse two options that contradict each other."""
    if len(names := together(**options)) > 1:
        raise CostInputError(names[0], "", f"and {' and '.join(names[1:])} exclude each other")


def needs(option: str, given: object, others: str, present: object) -> None:
    """Refuse an option that means nothing without another."""
    if given and not present:
        raise CostInputError(option, "", f"means nothing without {others}")


def question(model: str, given: Given) -> Question:
    """What is asked. Raises CostInputError that names the option (or the file) and what is wrong with it."""
    _consistent(given)
    known, accelerator = find_model(model), find_accelerator(given.accelerator)
    ranks = parse(given.tp, COUNT, "--tp") if given.tp is not None else Fraction(1)
    architecture = blamed("--model", lambda: known.architecture)
    blamed("--tp", lambda: check_ranks(architecture, ranks))
    shape = shape_of(architecture, ranks, KV_WIDTHS[given.kv_dtype], known.weight_width)
    block = parse(given.block, TOKENS, "--block")
    device, about_device = _device(given, accelerator)
    path = copy_path(given.bandwidth, given.copy_overhead, given.copy_size, given.curve, accelerator)
    hit = parse(given.hit, SHARE, "--hit", zero=True) if given.hit is not None else None
    setting = Setting(
        shape,
        device,
        Transfer(
            path.out,
            path.back,
            block,
            path.copies,
            trip=Trip.WRITE_THROUGH if given.write_through else Trip.ROUND_TRIP,
            directions=Directions.OVERLAPPED if given.duplex else Directions.SERIAL,
            hit=Hit.SAVES_BYTES if given.hit_bytes == "save" else Hit.KEEPS_BYTES,
        ),
        Run.PIGGYBACK if given.piggy_back else Run.ALONE,
        hit,
    )
    blamed("--model", lambda: checked(setting))
    asked = Question(known, accelerator, ranks, given.kv_dtype, setting, path, ())
    return evolve(asked, assumptions=(*path.assumptions, *about_device, *_about(asked)))


def _consistent(given: Given) -> None:
    exclusive(curve=given.curve, bandwidth=given.bandwidth)
    exclusive(curve=given.curve, copy_overhead=given.copy_overhead)
    exclusive(mfu=given.mfu, mfu_gemm=given.mfu_gemm)
    exclusive(mfu=given.mfu, mfu_attention=given.mfu_attention)
    exclusive(alone=given.alone, piggy_back=given.piggy_back)
    exclusive(write_through=given.write_through, duplex=given.duplex)
    needs("--hit-bytes", given.hit_bytes, "--hit", given.hit)
    needs("--copy-size", given.copy_size, "--copy-overhead or --curve", given.copy_overhead or given.curve)


def _device(given: Given, accelerator: Accelerator) -> tuple[Device[Fraction], list[str]]:
    """The GPU at its efficiencies, and what was assumed."""
    both = parse(given.mfu, SHARE, "--mfu") if given.mfu is not None else HALF
    gemm = parse(given.mfu_gemm, SHARE, "--mfu-gemm") if given.mfu_gemm is not None else both
    attention = parse(given.mfu_attention, SHARE, "--mfu-attention") if given.mfu_attention is not None else both
    peak: Fraction | None = accelerator.bf16_flops
    if given.compute_dtype == "fp8":
        peak = accelerator.fp8_flops
    if peak is None:
        raise CostInputError("--compute-dtype", "", f"{accelerator.name} computes no faster in fp8 than in bf16")
    device = Device(peak, accelerator.memory_bandwidth, gemm, attention)
    rate = f"{show(peak, FLOP_RATE)} peak ({given.compute_dtype}, dense)"
    if gemm == attention:
        said = "" if given.mfu is not None else ", for want of --mfu"
        return device, [f"recompute reaches {show(gemm, SHARE)} of {rate}{said}"]
    shares = f"{show(gemm, SHARE)} in GEMMs and {show(attention, SHARE)} in attention"
    return device, [f"recompute reaches {shares} of {rate}"]


def _about(asked: Question) -> list[str]:
    setting, found = asked.setting, []
    transfer = setting.transfer
    if setting.run is Run.ALONE:
        found.append("the recompute runs alone and reads all weights once (--piggy-back: in passes that run anyway)")
    else:
        found.append("the recompute rides in passes that run anyway: no weight read of its own")
    if transfer.trip is Trip.WRITE_THROUGH:
        found.append("write-through: the KV is in host memory already, only the way back counts")
    elif transfer.directions is Directions.OVERLAPPED:
        found.append("duplex: one request goes out while another comes in, so that the slower way alone counts")
    else:
        found.append("the swap pays both ways, one after the other")
    if setting.hit is None:
        found.append(NO_CACHE)
    else:
        moved = "in neither direction" if transfer.hit is Hit.SAVES_BYTES else "nevertheless"
        found.append(f"a prefix hit gives {show(setting.hit, SHARE)} of the tokens back; a swap moves them {moved}")
    found.append(f"KV in {asked.kv_dtype}, moved in whole blocks of {show(transfer.block, TOKENS)} tokens")
    if asked.ranks > 1:
        gpus = f"per GPU, each of the {asked.ranks} with a link of its own"
        found.append(f"{gpus}; what they say to each other is not counted")
    if not asked.model.verified:
        found.append(f"the facts of {asked.model.name} are not verified: {asked.model.source}")
    if not asked.accelerator.verified:
        found.append(f"the figures of {asked.accelerator.name} are not verified: {asked.accelerator.source}")
    if asked.model.note:
        found.append(f"{asked.model.name}: {asked.model.note}")
    return [*found, *_crowded(setting.shape, asked.accelerator)]


def _crowded(shape: Shape[Fraction], accelerator: Accelerator) -> list[str]:
    if shape.weight_bytes <= accelerator.memory_bytes:
        return []
    weights, memory = (show(x, BYTES) for x in (shape.weight_bytes, accelerator.memory_bytes))
    return [f"WARNING: {weights} of weights per GPU do not fit into the {memory} of {accelerator.name}: raise --tp"]


def copies_of(question: Question, length: Fraction) -> tuple[Batch[Fraction], ...]:
    """The copies of one direction as they are really made: where their size was given, that size."""
    setting, size = question.setting, question.path.size
    hit = cached(setting, length)
    if size is None:
        return batches(setting.shape, setting.transfer, length, hit)
    return (Batch(moved_bytes(setting.shape, setting.transfer, length, hit) / size, size),)
