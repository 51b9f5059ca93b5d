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

#: What comes of it for whoever waits for the answer, or runs the engine.
CONSEQUENCES: Mapping[str, str] = {
    "pool/conserve": "The pool shrinks with time, or blocks are handed out that are in use.",
    "pool/refcount": "A block is freed under somebody who reads it, or never freed.",
    "pool/free-once": "Two requests may be given the same block, and overwrite each other's KV.",
    "pool/all-or-nothing": "Blocks or computed tokens leak with every failed admission.",
    "pool/capacity": "KV is written outside of the request's blocks: into somebody else's.",
    "victim/trigger": "Work is thrown away that nobody asked for.",
    "victim/necessity": "Work is thrown away without need: latency for nothing.",
    "victim/minimal": "More requests are recomputed than had to be: latency for nothing.",
    "victim/yield": "Preemptions cascade: each frees nothing yet, and one more is taken.",
    "victim/duty": "The request stalls with memory in hand, and those behind it too.",
    "victim/choice": "The wrong user pays: order and priorities that were promised do not hold.",
    "victim/reset": "What is left of the past is taken for true when the request comes back.",
    "victim/keep-tokens": "Tokens that the user has seen are lost or said again.",
    "victim/unplan": "The worker runs tokens in blocks that are no longer the request's: silent corruption.",
    "queue/one-place": "The request runs twice, or never again.",
    "queue/front": "A victim waits longer than the policy promises, or others do.",
    "queue/order": "An older request waits while younger ones are served: it may starve.",
    "queue/visit-once": "A request misses its turn, or gets two.",
    "queue/admission": "More runs than the engine may hold: the next step pays with preemptions, or with memory.",
    "resume/message": "The worker attends blocks of before the preemption: silently wrong output.",
    "resume/hit": "A token is never computed, and what is sampled from it is noise.",
    "resume/provenance": "The model attends what somebody else, or nobody, wrote: silently wrong output.",
    "resume/publish": "Whoever has that prefix next attends unwritten KV: silently wrong output, for others too.",
    "swap/round-trip": "The request goes on over KV that is not its own: silently wrong output.",
    "swap/fence": "A copy and a pass write the same block: KV is torn, on this tier or the other.",
    "swap/host-pool": "Host memory leaks, or a full host ends the engine.",
    "frame/once": "A token is lost, repeated, or counted for a request that has moved on.",
    "output/stream": "The user reads a token that the model never said there.",
    "live/progress": "The request hangs, and with it whoever waits behind it.",
    "live/no-thrash": "The engine is busy and nobody gets a token.",
    "live/oversize": "The request waits for ever and blocks the queue.",
    "live/survives": "The engine dies, with every request in it.",
    "edge/abort": "Memory leaks with each cancelled request, or its id cannot be used again.",
    "edge/stats": "Dashboards and autoscalers are told what is not so.",
}
