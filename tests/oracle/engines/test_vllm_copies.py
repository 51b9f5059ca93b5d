"""The worker made up for vLLM's connectors: what it holds, and when its copies are over. No engine in here."""

from __future__ import annotations

from collections import Counter

from preempt_oracle.engines.vllm_copies import IN, OUT, SLOWEST, Copies


def prefix(name: str, position: int) -> object:
    return name, position


def worker(seed: int = 0) -> Copies:
    """Page size 2; request a owns blocks 5 and 6, and computed them."""
    copies = Copies(2, seed)
    copies.tiers.hear([["a", 0, [5, 6], True]])
    copies.tiers.run({"a": (0, 4)}, prefix)
    return copies


def test_frames_write_the_slots_of_the_table_that_was_told():
    tiers = worker().tiers
    assert tiers.device == {5: (("a", 0), ("a", 1)), 6: (("a", 2), ("a", 3))}
    tiers.hear([["a", 0, [7]]])
    tiers.run({"a": (4, 1), "unheard of": (0, 1)}, prefix)
    assert tiers.device[7] == (("a", 4), None)


def test_content_crosses_the_link_out_and_in():
    copies = worker()
    out = copies.start(0, ("a",), OUT, ((5, 1), (6, 0)), 0)
    assert not copies.tiers.host, "nothing is there before the copy is over"
    assert copies.finish(0, 1) is out
    assert copies.tiers.host == {1: (("a", 0), ("a", 1)), 0: (("a", 2), ("a", 3))}
    back = copies.start(1, ("a",), IN, ((1, 8), (0, 9)), 1)
    assert copies.finish(1, 2) is back
    assert (copies.tiers.device[8], copies.tiers.device[9]) == (copies.tiers.device[5], copies.tiers.device[6])
    assert back.done() == [{"event": "copy_done", "copy": 2}]


def test_what_changes_while_it_is_copied_arrives_as_nothing():
    copies = worker()
    job = copies.start(0, ("a",), OUT, ((5, 1),), 0)
    copies.tiers.hear([["b", 0, [5], True]])
    copies.tiers.run({"b": (0, 1)}, prefix)
    assert copies.finish(0, 1) is job
    assert job.done() == [{"event": "copy_done", "copy": 0, "ok": False}]
    assert copies.tiers.host[1] == (None, None)


def test_a_copy_is_told_once_and_reported_once():
    copies = worker()
    job = copies.start(0, ("a",), OUT, ((5, 1),), 0)
    assert copies.finish(0, 3) is job
    assert copies.finish(0, 3) is None
    assert copies.report(2) == ([], []), "not before the frame that waited for it"
    assert copies.report(3) == ([job], []), "reported, and told already"
    assert copies.report(9) == ([], [])


def test_copies_take_their_time_and_end_in_any_order():
    frames: Counter[int] = Counter()
    orders = set()
    for seed in range(40):
        copies = worker(seed)
        for number in range(3):
            copies.start(number, ("a",), OUT, ((5, number),), 0)
        seen: list[int] = []
        for frame in range(SLOWEST + 2):
            over, fresh = copies.report(frame)
            assert over == fresh
            seen += [job.number for job in over]
            frames[frame] += len(over)
        assert sorted(seen) == [0, 1, 2]
        orders.add(tuple(seen))
    assert frames[0] == 0, "a store begins behind its frame, and is over with the next at the earliest"
    assert all(frames[frame] for frame in range(1, SLOWEST + 2))
    assert len(orders) == 6, "every order occurs"


def test_a_load_may_be_over_with_its_own_frame():
    over = []
    for copies in map(worker, range(40)):
        copies.start(0, ("b",), IN, ((1, 5),), 0)
        over.append(bool(copies.report(0)[0]))
    assert any(over)
    assert not all(over)
    copies = worker()
    copies.start(0, ("b",), IN, ((1, 5),), 0)
    assert copies.loading("b")
    assert not copies.loading("a")


def test_a_stream_ends_its_copies_as_they_began_and_the_other_goes_its_own_way():
    orders = set()
    for seed in range(40):
        copies = Copies(2, seed, in_order=True)
        for number in range(3):
            copies.start(2 * number, (), OUT, ((5, number),), number)
            copies.start(2 * number + 1, ("a",), IN, ((number, 6),), number)
        seen = [job.number for frame in range(3 + SLOWEST + 2) for job in copies.report(frame)[0]]
        assert [n for n in seen if not n % 2] == [0, 2, 4]
        assert [n for n in seen if n % 2] == [1, 3, 5]
        orders.add(tuple(seen))
    assert len(orders) > 3


def test_a_load_that_fails_loses_one_page_and_is_told_in_parts():
    whole = failed = 0
    for seed in range(40):
        copies = Copies(2, seed, failing=True)
        copies.tiers.host = {0: ("p0", "p1"), 1: ("p2", "p3")}
        job = copies.start(3, ("a",), IN, ((0, 5), (1, 6)), 0)
        over = [x for frame in range(SLOWEST + 1) for x in copies.report(frame)[0]]
        assert over == [job]
        if job.broken is None:
            whole += 1
            assert job.invalid() == []
            assert copies.tiers.device == {5: ("p0", "p1"), 6: ("p2", "p3")}
            continue
        failed += 1
        (lost,) = job.invalid()
        kept = 11 - lost
        assert copies.tiers.device[lost] == (None, None)
        assert copies.tiers.device[kept] == copies.tiers.host[kept - 5]
        assert [e["copy"] for e in job.started()] == [6, 7]
        assert [e["blocks"] for e in job.started()] == [[[kept - 5, kept, 0]], [[lost - 5, lost, 0]]]
        assert job.done() == [{"event": "copy_done", "copy": 6}, {"event": "copy_done", "copy": 7, "ok": False}]
    assert whole
    assert failed


def test_a_load_of_a_single_page_that_fails_is_one_part():
    jobs = [Copies(2, seed, failing=True).start(0, ("a",), IN, ((0, 5),), 0) for seed in range(40)]
    failing = [job for job in jobs if job.broken is not None]
    assert failing
    assert all([e["copy"] for e in job.started()] == [1] for job in failing)
    nothing = Copies(2, 0, failing=True).start(0, ("a",), IN, (), 0)
    assert nothing.started() == nothing.done() == []
