"""Known-failures files: what one says, and what cannot be used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from preempt_oracle.known import Bounds, KnownError, load

ENTRY = """\
# The first line is a comment.

[[known]]
rules = ["queue/front"]
engine = "e"
versions = ["1", "2"]
policy = "vllm-fcfs"
reason = "Because."
where = { caching = true }
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "known.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_an_entry_reads_back(tmp_path):
    text = ENTRY.replace("{ caching = true }", "{ chunked = false, budget = 4, long_prefill = { min = 1, max = 8 } }")
    text += 'trace = "a-*.jsonl"\nwithin = 30\n\n' + ENTRY.replace("queue/front", "queue/order")
    first, second = load(written(tmp_path, text))
    assert (first.rules, first.engine, first.versions, first.policy) == (("queue/front",), "e", ("1", "2"), "vllm-fcfs")
    assert first.where == {"chunked": False, "budget": 4, "long_prefill": Bounds(1, 8)}
    assert (first.trace, first.within, first.reason) == ("a-*.jsonl", 30, "Because.")
    assert first.place == f"{tmp_path / 'known.toml'}:3"
    assert first.family == "e 1, 2, vllm-fcfs: trace a-*.jsonl, chunked = false, budget = 4, long_prefill 1 to 8"
    assert second.where == {"caching": True}
    assert second.within == 1


def without(name: str) -> str:
    return "".join(line for line in ENTRY.splitlines(True) if not line.startswith(name))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "known: expected one [[known]] or more"),
        ("known = 1\n", "known: expected one [[known]] or more"),
        ("known = []\n", "known: expected one [[known]] or more"),
        ("other = 1\n" + ENTRY, "other: unknown field; entries are [[known]]"),
        ("[[known]]\nrules = [\n", ": not TOML: "),
        ("a = " + "[" * 5000, "not TOML"),
        (ENTRY + "extra = 1\n", ":10: extra: unknown field; there are rules, engine"),
        (without("rules"), ":3: rules: missing"),
        (without("engine"), ":3: engine: missing"),
        (without("versions"), ":3: versions: missing"),
        (without("policy"), ":3: policy: missing"),
        (without("reason"), ":3: reason: missing"),
        (without("where"), ":3: where: missing, and so is trace"),
        (ENTRY.replace("queue/front", "queue/fornt"), ":4: rules: there is no rule 'queue/fornt'"),
        (ENTRY.replace('"queue/front"', ""), ":4: rules: must be a list of texts, one or more, not []"),
        (ENTRY.replace('["queue/front"]', '"queue/front"'), ":4: rules: must be a list of texts"),
        (ENTRY.replace('"queue/front"', '"queue/front", "queue/front"'), ":4: rules: 'queue/front' stands there twice"),
        (ENTRY.replace('"e"', "7"), ":5: engine: must be a text, not 7"),
        (ENTRY.replace('"1", "2"', "1"), ":6: versions: must be a list of texts, one or more, not [1]"),
        (ENTRY.replace("vllm-fcfs", "fcfs"), ":7: policy: 'fcfs' is unknown; profiles are vllm-fcfs"),
        (ENTRY.replace("Because.", ""), ":8: reason: is empty"),
        (ENTRY.replace("Because.", " \\t"), ":8: reason: is empty"),
        (ENTRY.replace("{ caching = true }", "true"), ":9: where: must be a table"),
        (ENTRY.replace("caching", "cashing"), ":9: where.cashing: unknown condition; there are max_running, budget"),
        (ENTRY.replace("true", "1"), ":9: where.caching: must be true or false, not 1"),
        (ENTRY.replace("caching = true", "budget = true"), ":9: where.budget: must be a whole number or"),
        (ENTRY.replace("caching = true", "budget = {}"), ":9: where.budget: must be a whole number or"),
        (ENTRY.replace("caching = true", "budget = { over = 1 }"), ":9: where.budget: must be a whole number or"),
        (ENTRY.replace("caching = true", "budget = { min = 1.5 }"), ":9: where.budget: must have whole numbers"),
        (ENTRY.replace("caching = true", "budget = { min = 2, max = 1 }"), ":9: where.budget: nothing is 2 to 1"),
        (ENTRY + "trace = 1\n", ":10: trace: must be a text, not 1"),
        (ENTRY + "within = 0\n", ":10: within: must be a whole number from 1, not 0"),
        (ENTRY + "within = true\n", ":10: within: must be a whole number from 1, not True"),
        (ENTRY + ENTRY, ":13: rules: queue/front is known for this family already ("),
        (ENTRY + ENTRY.replace('"1", ', "").replace('"queue/', '"queue/order", "queue/'), "for this family already"),
    ],
)
def test_what_cannot_be_used_is_told_with_file_line_and_field(tmp_path, text, said):
    file = written(tmp_path, text)
    with pytest.raises(KnownError) as raised:
        load(file)
    assert str(raised.value).startswith(str(file))
    assert said in str(raised.value)


def test_a_table_of_its_own_is_found_too(tmp_path):
    text = without("where") + "[known.where]\ncaching = 3\n"
    with pytest.raises(KnownError, match=r"known\.toml:9: where\.caching: must be true or false"):
        load(written(tmp_path, text))


def test_where_no_line_is_known_the_entry_is_counted(tmp_path):
    inline = 'known = [{ rules = ["queue/front"], engine = "e", versions = ["1"], policy = "vllm-fcfs", where = {} }]\n'
    with pytest.raises(KnownError, match=r"known\.toml: entry 1: reason: missing"):
        load(written(tmp_path, inline))
    # A head inside a text must not shift the others.
    quoted = ENTRY.replace('"Because."', '"""\n[[known]]\n"""') + ENTRY.replace("Because.", "")
    with pytest.raises(KnownError, match=r"known\.toml: entry 2: reason: is empty"):
        load(written(tmp_path, quoted))


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(KnownError, match=r"absent\.toml: cannot read: No such file"):
        load(tmp_path / "absent.toml")
    with pytest.raises(KnownError, match="cannot read"):
        load(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(KnownError, match="not a text file"):
        load(tmp_path / "binary.toml")
    with pytest.raises(KnownError, match=r"no\\nfile"):
        load("no\nfile")


def test_the_same_rule_may_be_known_in_another_family(tmp_path):
    text = ENTRY + ENTRY.replace("caching = true", "caching = false") + ENTRY.replace('"1", "2"', '"3"')
    assert len(load(written(tmp_path, text))) == 3


def test_the_example_of_the_documents_can_be_used(tmp_path):
    page = Path(__file__).parents[3] / "docs" / "known-failures.md"
    (example,) = re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    (entry,) = load(written(tmp_path, example))
    assert entry.where == {"caching": True, "long_prefill": Bounds(1)}
