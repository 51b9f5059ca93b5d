"""What a broken rule most often means, in one sentence of the domain: where to look in the scheduler.

The rule says what was wrong, the message where it showed. These sentences say what schedulers do that ends there, as
public reports and the known-bad schedulers have it; a hint, no finding.
"""

from __future__ import annotations

from collections.abc import Mapping

CAUSES: Mapping[str, str] = {
    "pool/conserve": "Blocks were lost or counted twice: a release, abort or failed admission gave back other "
    "blocks than it had taken.",
    "pool/refcount": "Sharers of a block were miscounted: a hit took no reference, or a release dropped one too many.",
    "pool/free-once": "The same blocks were released by two paths, such as a preemption and the finish behind it.",
    "pool/all-or-nothing": "An admission that failed half-way kept what it had taken so far.",
    "pool/capacity": "Tokens were granted before, or without, the blocks that hold them.",
    "victim/trigger": "Somebody was preempted for a reason that this policy does not know.",
    "victim/necessity": "A victim was taken although the blocks sufficed: need or supply was miscounted.",
    "victim/minimal": "One victim had made room enough, and another was taken: the loop does not look again.",
    "victim/yield": "A victim gave nothing yet, its blocks being in use, and one more was taken instead of waiting.",
    "victim/duty": "A running request cannot grow, and nobody is preempted for it: it starves.",
    "victim/choice": "The wrong request was preempted: the order of the queue, a tie or an index is not the policy's.",
    "victim/reset": "Something of before the preemption survived it: computed tokens, drafts, placeholders or a table.",
    "victim/keep-tokens": "A victim lost outputs that its user has seen, or resumes towards its prompt alone.",
    "victim/unplan": "The victim had a grant in this very step, and the grant or its budget was not taken back.",
    "queue/one-place": "A request stands in two queues, or in none: a preemption moved it only half-way.",
    "queue/front": "The victim went back to the wrong place of the queue: it is overtaken, or overtakes.",
    "queue/order": "A younger request was admitted over an older one that was ready.",
    "queue/visit-once": "The pass over the running queue missed a request or met it twice: the list changed.",
    "queue/admission": "A request passed a gate that was shut: slots, budget, room, or a preemption just now.",
    "resume/message": "The worker was not told the table that the allocator has: it reads or writes other blocks.",
    "resume/hit": "More of the prompt was taken for cached than was: the sampled position has nothing to compute.",
    "resume/provenance": "A pass reads slots that were never written, or were written for another request.",
    "resume/publish": "A page became findable although its KV was not, or not yet, written.",
    "swap/round-trip": "KV came back from the host that never went there, or into blocks that are not the request's.",
    "swap/fence": "A block was used again while a copy or a pass was still at it.",
    "swap/host-pool": "Host blocks were miscounted, or a full host pool was not answered by recomputing.",
    "frame/once": "An output of a flying frame was lost, delivered twice, or changed what it must not touch.",
    "output/stream": "A token was lost, repeated, or sampled in a context that is not the request's.",
    "live/progress": "Nothing moves any more: somebody waits for what nobody will do.",
    "live/no-thrash": "Requests preempt each other in turn, and compute the same again and again.",
    "live/oversize": "What cannot fit was kept waiting, or what fits was refused.",
    "live/survives": "The scheduler met a state that its own code takes for impossible.",
    "edge/abort": "A cancelled request left something behind: a place in a queue, a grant, or its blocks.",
    "edge/stats": "The engine's counters do not say what happened.",
}
