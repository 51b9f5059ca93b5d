"""SGLang: requests are retracted where a decode step does not fit."""

from __future__ import annotations

from attrs import evolve

from preempt_spec.policies.policy import (
    AfterPreemption,
    AfterSelf,
    FullHit,
    Gate,
    Lineup,
    Need,
    Order,
    Oversize,
    Phase,
    Policy,
    Progress,
    Publish,
    Requeue,
    Slots,
    Twins,
    Victim,
)
from preempt_spec.policies.profiles.profile import CORE_WITH_WORKER, PLAIN, Profile

_SGLANG = "SGLang 0.5.23 srt/managers"
_RETRACT = f"{_SGLANG}/schedule_batch.py, retract_decode()"

SGLANG_RETRACT = Profile(
    name="sglang-retract",
    contract=Policy(
        name="sglang-retract",
        victim=Victim.FEWEST_OUTPUTS,
        requeue=Requeue.BACK,
        order=Order.ARRIVAL,
        need=Need.TOGETHER,
        phase=Phase.PREFILL_FIRST,
        after_preemption=AfterPreemption.CLOSED,
        after_self=AfterSelf.CONTINUE,
        slots=Slots.RUNNING,
        full_hit=FullHit.LEAVE_ONE,
        oversize=Oversize.FRONT_END,
        progress=Progress.EVERY_BATCH,
        publish=Publish.COMMIT,
        lineup=Lineup.SORTED,
        gate=Gate.CONSERVATIVE,
        twins=Twins.MERGED,
        hidden=True,
    ),
    sources={
        **PLAIN,
        "victim": f"{_SGLANG}/schedule_batch.py, _get_decode_retraction_order(): sorted by (outputs, -prompt), "
        "descending and stable; retract_decode() pops the last and always keeps one",
        "requeue": f"{_SGLANG}/scheduler.py, update_running_batch(): _add_request_to_queue() appends",
        "order": "same file, _add_request_to_queue(); schedule_policy.py, SchedulePolicy with fcfs leaves it so",
        "need": f"{_SGLANG}/schedule_batch.py, check_decode_mem(): the pages that all of the batch lack, at once",
        "phase": f"{_SGLANG}/scheduler.py, get_next_batch_to_run(): decodes only if there is no new prefill batch",
        "after_preemption": "follows from the phase: a step that retracts is a decode step",
        "after_self": f"{_RETRACT}: one trigger for all who run, victims among them; who stays decodes in that step",
        "slots": f"{_SGLANG}/scheduler.py, get_num_allocatable_reqs()",
        "full_hit": f"{_SGLANG}/schedule_batch.py, _compute_max_prefix_len(): input length - 1",
        "oversize": f"{_SGLANG}/scheduler.py, init_req_max_new_tokens() cuts requests to the pool before they wait",
        "progress": "derived: see policies.progress.patience; a batch yields tokens, and one request always stays",
        "causes": f"{_SGLANG}/scheduler.py, update_running_batch(): only where check_decode_mem() is false",
        "publish": "mem_cache/common.py, checkpoint_kv_cache() and release_kv_cache(): when a result is processed",
        "lineup": f"{_RETRACT}: filter_batch(keep_indices=sorted_indices)",
        "twins": "mem_cache/unified_radix_cache.py, checkpoint_into_tree(): duplicates go, the row is rewritten",
        "gate": f"{_SGLANG}/schedule_policy.py, PrefillAdder: a page is kept free, and new_token_ratio × the outputs "
        "that those who run may still emit",
        "hidden": f"{_SGLANG}/scheduler_components/new_token_ratio_tracker.py: the ratio decays with each decode step "
        "and is estimated anew at each retraction; and ScheduleBatch.batch_is_full",
    },
    core=CORE_WITH_WORKER,
)

_ADDER = f"{_SGLANG}/schedule_policy.py, PrefillAdder.preempt_to_schedule()"

#: With --enable-priority-scheduling, of which preemption is a part. What a decode step retracts, and how, stays.
#: Nobody has to make way (victim/duty does not speak of an admission): whether somebody does hangs on estimates.
SGLANG_PRIORITY = Profile(
    name="sglang-priority",
    contract=evolve(
        SGLANG_RETRACT.contract,
        name="sglang-priority",
        order=Order.PRIORITY_EACH_STEP,
        causes=frozenset({"growth", "admission"}),
    ),
    sources={
        **SGLANG_RETRACT.sources,
        "order": f"{_SGLANG}/schedule_policy.py, SchedulePolicy.calc_priority(): sorted by priority and time of entry, "
        "which _add_request_to_queue() sets anew",
        "causes": f"{SGLANG_RETRACT.sources['causes']}; {_ADDER}, where no slot is left for who is next",
        "after_preemption": f"{_ADDER}: who asks is admitted by the same pass; a step that retracts is a decode step",
        "lineup": f"{SGLANG_RETRACT.sources['lineup']}; {_ADDER} keeps the order of those who stay",
        "gate": f"{SGLANG_RETRACT.sources['gate']}; {_ADDER} counts by that estimate whether victims are enough, and "
        "how many: left open is whether anybody is displaced, and a further victim within all that may be emitted",
    },
    core=SGLANG_RETRACT.core,
)
