"""LMDeploy's PyTorch engine."""

from __future__ import annotations

from preempt_spec.policies.policy import (
    AfterPreemption,
    AfterSelf,
    FullHit,
    Need,
    Order,
    Oversize,
    Phase,
    Policy,
    Progress,
    Release,
    Requeue,
    Slots,
    Victim,
)
from preempt_spec.policies.profiles.profile import CORE_WITH_WORKER, PLAIN, Deviation, Profile

_PAGING = "LMDeploy 0.18.0 pytorch/paging"
_MAKER = "LMDeploy 0.18.0 pytorch/engine/inputs_maker.py"

LMDEPLOY = Profile(
    name="lmdeploy",
    contract=Policy(
        name="lmdeploy",
        victim=Victim.ITSELF_NEWEST_FIRST,
        requeue=Requeue.ARRIVED,
        order=Order.ARRIVAL,
        need=Need.AHEAD,
        phase=Phase.TURNS,
        after_preemption=AfterPreemption.CLOSED,
        after_self=AfterSelf.CONTINUE,
        slots=Slots.RUNNING,
        full_hit=FullHit.LEAVE_ONE,
        oversize=Oversize.FRONT_END,
        progress=Progress.EVERY_BATCH,
        release=Release.LAZY,
        hidden=True,
    ),
    sources={
        **PLAIN,
        "victim": f"{_PAGING}/scheduler.py, schedule_running(): reversed(range(len(running))), preempt_seqs((seq,))",
        "requeue": f"{_PAGING}/prefill_scheduler.py, reorder(): sorted by arrive_time, which a preemption leaves",
        "order": "same method",
        "need": f"{_PAGING}/scheduler.py, schedule_running(): num_required_blocks(seq, 1), then allocate(seq, "
        "prealloc_size); strategies/ar/engine.py: that is prefill_interval",
        "phase": f"{_MAKER}, do_prefill_default(): a count of decodes, enough waiting tokens, or half of the slots "
        "empty; _ForwardInputsTask.run(): without a prefill batch, decode",
        "after_preemption": "follows from the phase: a step that preempts is a decode step",
        "after_self": f"{_PAGING}/scheduler.py, schedule_running(): the loop goes on",
        "slots": f"{_PAGING}/prefill_scheduler.py, schedule(): max_batches - num_ready - num_running",
        "full_hit": "pytorch/messages.py, get_prefix_cache_max_candidate_step(): num_valid_ids - 1",
        "oversize": "the scheduler has no check; the engine's session length bounds a request before it",
        "progress": "derived: see policies.progress.patience; a step in which everybody left is followed by a prefill",
        "causes": f"{_PAGING}/scheduler.py, schedule_running(): only where try_make_capacity_for() is false",
        "memory": "no copies: swap_in_map and swap_out_map are always empty",
        "release": f"{_PAGING}/eviction_helper/recompute_eviction_helper.py, _reclaim_candidate(): when somebody lacks "
        "room, those who wait give back their blocks one by one; until then they keep them, and their step",
        "publish": f"{_PAGING}/block_trie, allocate(): when the blocks are allocated",
        "hidden": "the count of decodes since a prefill (do_prefill_default) decides whose turn it is",
    },
    core=CORE_WITH_WORKER,
    # Of 0.10.2 the other knobs are the same, as far as it is judged: with `prefill_interval` 1, room for one token and
    # room for prefill_interval tokens (its pytorch/paging/scheduler.py, _schedule_decoding()) are the same. Its
    # admissions take no more than what is known; who is admitted may take as little as that under any policy.
    deviations=(
        Deviation(
            knob="victim",
            value=Victim.ITSELF_OLDEST_FIRST,
            engine="lmdeploy",
            versions=("0.10.2",),
            why="contract (0.18.0): who came last is looked at first, so that it leaves for those before it; earlier "
            "versions look at the oldest first (pytorch/paging/scheduler.py, _schedule_decoding(): `for seq in "
            "running`), which leaves where a younger one could have, and whose blocks the younger ones then take",
            scenario="pages of 2, pool of 4: two requests outgrow it together, and the first preempts itself",
        ),
    ),
)
