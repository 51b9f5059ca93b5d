"""The registry: complete, sourced, and what is derived from it equals the figures that were checked by hand."""

from __future__ import annotations

from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preempt_oracle.cost import registry, rows
from preempt_oracle.cost.errors import CostInputError
from preempt_oracle.cost.facts import Model
from preempt_spec.cost.checked import check_points, checked
from preempt_spec.cost.copies import effective_bandwidth
from preempt_spec.cost.fit import FASTER, fit_affine, refutations
from preempt_spec.cost.shape import shape_of

#: Figures collected independently of this code: KV bytes per token in BF16, FLOP per pair of tokens, parameters in
#: total, active, in the embedding (None: not collected). They left out small vectors; `LEFT_OUT` says which.
FIGURES: dict[str, tuple[int, int, int | None, int | None, int | None]] = {
    "llama-3.1-8b": (131_072, 524_288, 8_030_261_248, 8_030_261_248, 525_336_576),
    "llama-3.1-70b": (327_680, 2_621_440, 70_553_706_496, 70_553_706_496, 1_050_673_152),
    "llama-3.1-405b": (516_096, 8_257_536, 405_853_388_800, 405_853_388_800, 2_101_346_304),
    "qwen3-0.6b": (114_688, 229_376, 596_049_920, 596_049_920, 155_582_464),
    "qwen3-1.7b": (114_688, 229_376, 1_720_574_976, 1_720_574_976, 311_164_928),
    "qwen3-8b": (147_456, 589_824, 8_190_735_360, 8_190_735_360, 622_329_856),
    "qwen3-32b": (262_144, 2_097_152, 32_762_123_264, 32_762_123_264, 777_912_320),
    "qwen3-30b-a3b": (98_304, 786_432, 30_532_110_336, 3_353_020_416, 311_164_928),
    "qwen3-235b-a22b": (192_512, 3_080_192, 235_093_610_496, 22_190_739_456, 622_329_856),
    "mixtral-8x7b": (131_072, 524_288, 46_702_792_704, 12_879_925_248, 131_072_000),
    "mixtral-8x22b": (229_376, 1_376_256, 140_620_634_112, 39_152_031_744, 196_608_000),
    "gpt-oss-20b": (49_152, 393_216, 20_907_927_360, 4_186_416_960, 579_133_440),
    "gpt-oss-120b": (73_728, 589_824, 116_789_048_640, 5_710_443_840, 579_133_440),
    "deepseek-v3": (70_272, 4_997_120, 671_026_419_200, 37_552_297_472, 926_679_040),
    "deepseek-r1": (70_272, 4_997_120, 671_026_419_200, 37_552_297_472, 926_679_040),
    "kimi-k2": (70_272, 2_498_560, 1_026_408_232_448, 32_861_500_928, 1_174_405_120),
    "glm-5": (89_856, 5_111_808, 743_180_209_920, 41_053_720_320, 951_582_720),
    "llama-2-7b": (524_288, 524_288, 6_738_415_616, 6_738_415_616, 131_072_000),
    "llama-2-13b": (819_200, 819_200, 13_015_864_320, 13_015_864_320, 163_840_000),
    "llama-2-70b": (327_680, 2_621_440, 68_976_648_192, 68_976_648_192, 262_144_000),
    "qwen-72b": (2_621_440, 2_621_440, 72_285_954_048, 72_285_954_048, 1_245_708_288),
    "mistral-7b-v0.1": (131_072, 524_288, 7_241_732_096, 7_241_732_096, 131_072_000),
    "gemma-3-27b": (507_904, 1_015_808, 27_008_663_808, 27_008_663_808, 1_409_630_208),
    "glm-4.5": (376_832, 4_521_984, 352_796_472_320, 33_630_909_440, 775_946_240),
    "glm-4.5-air": (188_416, 2_260_992, 106_851_586_048, 13_423_464_448, 620_756_992),
    "opt-13b": (819_200, 819_200, 12_840_719_360, 12_840_719_360, 257_392_640),
    "opt-30b": (1_376_256, 1_376_256, 29_956_054_016, 29_956_054_016, 360_349_696),
    "opt-66b": (2_359_296, 2_359_296, 65_694_311_424, 65_694_311_424, 463_306_752),
    "phi-4": (204_800, 819_200, 14_659_507_200, 14_659_507_200, 513_802_240),
    "qwen3.5-27b": (65_536, 393_216, None, None, None),
    "nemotron-h-56b": (40_960, 327_680, None, None, None),
}


def _gpt_oss(layers: int, experts: int) -> int:
    """Biases of q, k, v, o; a sink per head; of the router; of every expert's two products."""
    return layers * (4096 + 512 + 512 + 2880 + 64 + experts + experts * (2 * 2880 + 2880))


def _opt(layers: int, hidden: int) -> int:
    """Biases of q, k, v, o (4), of the network (4 + 1), of two norms (2); of the last norm; positions."""
    return hidden * (11 * layers + 1 + 2050)


#: id -> parameters that the figures left out and the published weights have: in total, and of the active ones.
LEFT_OUT = {
    "qwen3-30b-a3b": (48 * 2 * 128,) * 2,  # norms of queries and keys
    "qwen3-235b-a22b": (94 * 2 * 128,) * 2,
    "gpt-oss-20b": (_gpt_oss(24, 32), _gpt_oss(24, 32) - 24 * 28 * 3 * 2880),  # 28 of 32 experts are idle
    "gpt-oss-120b": (_gpt_oss(36, 128), _gpt_oss(36, 128) - 36 * 124 * 3 * 2880),
    "qwen-72b": (80 * 3 * 8192,) * 2,  # biases of q, k, v
    "gemma-3-27b": (62 * (2 * 5376 + 2 * 128),) * 2,  # two of four norms, norms of queries and keys
    "glm-4.5": (92 * (14_336 + 2 * 128) + 89 * 160,) * 2,  # biases of q, k, v; their norms; correction biases
    "glm-4.5-air": (46 * 14_336 + 45 * 128,) * 2,
    "opt-13b": (_opt(40, 5120),) * 2,
    "opt-30b": (_opt(48, 7168),) * 2,
    "opt-66b": (_opt(64, 9216),) * 2,
}
#: What the figures did not have, as the model classes count it.
COUNTED = {"qwen3.5-27b": 26_895_998_464, "nemotron-h-56b": 56_324_350_464}

MODELS = {model.id: model for model in registry.models()}


def test_31_models_19_accelerators_and_the_curves_of_5_sources():
    curves = rows.curve_rows()
    assert (len(rows.model_rows()), len(rows.accelerator_rows())) == (31, 19)
    assert len({row.source for row in (*curves.copies, *curves.rates, *curves.times)}) == 5
    assert MODELS.keys() == FIGURES.keys()


def test_every_row_has_a_source_and_what_is_recalled_is_not_verified():
    curves = rows.curve_rows()
    for row in (*rows.model_rows(), *rows.accelerator_rows(), *curves.copies, *curves.rates, *curves.times):
        assert len(row.source) > 10, row.id
        assert row.verified is ("recalled" not in f"{row.source} {row.note}"), row.id


@pytest.mark.parametrize("name", FIGURES)
def test_what_is_derived_equals_the_figures(name):
    kv_bytes, pair_flops, total, active, embedding = FIGURES[name]
    model = MODELS[name]
    shape = shape_of(model.architecture, Fraction(1), Fraction(2), model.weight_width)
    assert sum(layers.kv_bytes for layers in shape.layers) == kv_bytes
    assert sum(layers.pair_flops for layers in shape.layers) == pair_flops
    counted = model.parameters
    if total is None or active is None:
        assert counted.total == counted.active == COUNTED[name]
        return
    more_total, more_active = LEFT_OUT.get(name, (0, 0))
    assert (counted.total, counted.active) == (total + more_total, active + more_active)
    assert counted.embedding == embedding
    assert more_total < total / 1000
    assert shape.weight_bytes == counted.total * model.weight_width


@pytest.mark.parametrize("row", rows.model_rows(), ids=lambda row: row.id)
def test_counts_are_near_what_the_makers_state(row):
    def stated(text: str) -> float:
        return float(text[:-1]) * {"B": 1e9, "T": 1e12}[text[-1]]

    counted = MODELS[row.id].parameters
    if row.stated_params:
        assert abs(counted.total / stated(row.stated_params) - 1) < 0.025
    if row.stated_active:
        # Some makers leave the embedding out of what is active, some the head too.
        assert counted.active - 2 * counted.embedding < stated(row.stated_active) * 1.02
        assert stated(row.stated_active) < counted.active * 1.02


@pytest.mark.parametrize("row", rows.model_rows(), ids=lambda row: row.id)
def test_facts_are_consistent(row):
    m: Model = row.facts
    mixers = (m.attention, m.latent, m.delta_net, m.mamba)
    networks = (m.mlp, m.experts)
    parts = sum(part.layers for part in (*mixers, *networks) if part)
    # A layer has a mixer and a network, or (Nemotron-H, with one norm) one of them.
    assert parts == m.layers * (2 if m.norms > 1 else 1)
    assert not (m.delta_net and m.mamba)
    if m.attention:
        assert m.attention.heads % m.attention.kv_heads == 0
        assert m.attention.sliding_layers <= m.attention.layers
        assert (m.attention.window is None) is (m.attention.sliding_layers == 0)
    assert checked(MODELS[row.id].architecture).max_length == m.max_position


def test_constant_states_of_the_hybrids():
    qwen = shape_of(MODELS["qwen3.5-27b"].architecture, Fraction(1), Fraction(2), Fraction(2)).state
    nemotron = shape_of(MODELS["nemotron-h-56b"].architecture, Fraction(1), Fraction(2), Fraction(2)).state
    assert qwen is not None
    assert qwen.state_bytes == 48 * (48 * 128 * 128 * 4 + (2 * 16 * 128 + 48 * 128) * 3 * 2)
    assert nemotron is not None
    assert nemotron.state_bytes == 54 * (256 * 64 * 256 * 4 + (256 * 64 + 2 * 8 * 256) * 3 * 2)


def test_accelerators_in_base_units():
    h100 = registry.find_accelerator("h100-sxm")
    assert h100.bf16_flops == 989 * 10**12
    assert h100.fp8_flops == 1978 * 10**12
    assert h100.memory_bytes == 80 * 1024**3
    assert h100.memory_bandwidth == 3350 * 10**9
    assert h100.link_bandwidth == 64 * 10**9
    assert registry.find_accelerator("a100").fp8_flops is None
    assert registry.find_accelerator("tpu-v5e").link_bandwidth is None
    gh200 = registry.find_accelerator("gh200").measured[0]
    assert gh200.out == 297 * 10**9
    assert gh200.back == 377 * 10**9


@pytest.mark.parametrize("accelerator", registry.accelerators(), ids=lambda a: a.id)
def test_accelerators_are_plausible(accelerator):
    a = accelerator
    assert 50e12 < a.bf16_flops < 3e15
    # Dense FP8 is twice dense BF16; a factor of 4 would be the sparse figure.
    assert a.fp8_flops is None or 1.9 < a.fp8_flops / a.bf16_flops < 2.1
    assert 0.2e12 < a.memory_bandwidth < 10e12
    # One direction of a link; a measured rate never exceeds it.
    for rate in a.measured:
        assert a.link_bandwidth is not None
        assert all(0 < r < a.link_bandwidth for r in (rate.out, rate.back) if r is not None)


def test_measured_curves_become_points_and_laws():
    dma = registry.find_curve("h100-dma")
    assert dma.out is not None
    assert dma.back is not None
    for points in (dma.out, dma.back):
        assert len(check_points(points)) == 13
    out, back = dma.laws()
    assert effective_bandwidth(out, Fraction(32 * 1024)) == 828 * 10**7
    assert effective_bandwidth(back, Fraction(32 * 1024)) == 756 * 10**7
    assert dma.assumes == ""
    batch = registry.find_curve("h100-batch-50k")
    assert batch.id == "h100-batch-50000"
    assert batch.laws()[0] == batch.laws()[1]
    assert "was not measured" in batch.assumes


def _points(name: str, way: str):
    points = getattr(registry.find_curve(name), way)
    assert points is not None
    return points


def test_the_shipped_curves_that_an_affine_law_fits():
    back = fit_affine(_points("h100-dma", "back"))
    assert 3e-6 < back.law.overhead < 4e-6
    assert 50e9 < back.law.bandwidth < 54e9
    # Out, 4 KiB copies were slower than any affine law allows: from 8 KiB on one does.
    out = fit_affine(_points("h100-dma", "out")[1:])
    assert 3e-6 < out.law.overhead < 4e-6
    assert 49e9 < out.law.bandwidth < 53e9


@pytest.mark.parametrize(
    ("name", "way", "small", "large"),
    [
        ("h100-dma", "out", 4, 16),
        ("h100-kernel", "out", 4, 8),
        ("h100-batch-10000", "back", 16, 24),
        ("h100-batch-50000", "back", 24, 28),
        ("h100-batch-100000", "back", 24, 28),
    ],
)
def test_the_shipped_curves_that_refute_every_affine_law(name, way, small, large):
    plainest = refutations(_points(name, way))[0]
    assert plainest.reason == FASTER
    assert (plainest.small.size, plainest.large.size) == (small * 1024, large * 1024)


def test_times_and_rates():
    ttft, pull = registry.request_times()
    assert registry.find_model(ttft.model).id == "llama-3.1-8b"
    assert registry.find_accelerator(pull.accelerator).id == "h200-sxm"
    for times in (ttft, pull):
        assert len(times.tokens) == len(times.compute) == len(times.load)
        for column in (times.tokens, times.compute, times.load):
            assert list(column) == sorted(column)
        assert all(load < compute for load, compute in zip(times.load, times.compute, strict=True))
    loop, kernel = registry.transfer_rates()
    assert loop.out == 312 * 10**7
    assert loop.back == 311 * 10**7
    assert kernel.out > loop.out


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("llama-3.1-8b", "llama-3.1-8b"),
        ("Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Meta_Llama 3.1 8B", "llama-3.1-8b"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("mistral-7b", "mistral-7b-v0.1"),
    ],
)
def test_models_are_found_by_id_and_alias(name, found):
    assert registry.find_model(name).id == found


def test_names_are_unambiguous():
    for table in (rows.model_rows(), rows.accelerator_rows(), rows.curve_rows().copies):
        names = [name for row in table for name in (row.id, *row.aliases)]
        assert len(names) == len(set(names))
        for name in names:
            assert name == name.casefold().replace("_", "-").replace(" ", "-").replace("/", "-")
    for model in registry.models():
        assert registry.find_model(model.id) is model


@pytest.mark.parametrize(
    ("find", "name", "message"),
    [
        (registry.find_model, "lama-3.1-8b", "--model: 'lama-3.1-8b' is the name of no known model"),
        (registry.find_model, "lama-3.1-8b", "did you mean llama-3.1-8b"),
        (registry.find_model, "", "known: llama-3.1-8b"),
        (registry.find_model, "\x1b[31m", "'\\x1b[31m'"),
        (registry.find_model, "a\0b", "is the name of no known model"),
        (registry.find_model, "x" * 10_000, "is the name of no known model"),
        (registry.find_model, "nowhere/config.json", "nowhere/config.json: cannot be read"),
        (
            registry.find_accelerator,
            "h1000",
            "--accelerator: 'h1000' is the name of no known accelerator; did you mean",
        ),
        (registry.find_curve, "h100dma", "did you mean h100-dma"),
    ],
)
def test_unknown_names_are_refused_with_near_ones(find, name, message):
    with pytest.raises(CostInputError) as error:
        find(name)
    assert message in str(error.value)
    assert "\x1b" not in str(error.value)


@given(st.text(max_size=30))
def test_any_name_is_found_or_refused(name):
    for find in (registry.find_accelerator, registry.find_curve):
        try:
            assert find(name).id
        except CostInputError as error:
            assert str(error).startswith("--")  # noqa: PT017


@pytest.mark.parametrize("extra", ['"kv_bytes_per_token": 131072', '"layers": 0', '"hidden": "4096"', '"tied": 1'])
def test_rows_are_strict(extra):
    raw = '{"layers": 1, "hidden": 1, "vocab": 1, ' + extra + "}"
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw, type=Model)
