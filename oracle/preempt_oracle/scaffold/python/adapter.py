"""The scheduler behind preempt-oracle's adapter protocol.

An adapter translates. It never judges, never samples (`deliver` brings the tokens), and does not repair what it sees:
what it tells is read off the scheduler's own structures, each observation from another one where there are two. What
it cannot see it does not declare in `OBSERVES`: a rule that needs it is then "not observable", and never a pass.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from preempt_oracle.engines.child import Command, Engine, Refused, Reply, arrive, fixed, header
from scheduler import Request, Scheduler

#: What is really observed: see OBSERVABLE in preempt_spec/events.py for what each word promises.
OBSERVES = (
    "counts", "blocks", "free", "free-ids", "refs", "queues", "demote", "trigger", "release", "reset", "held", "place",
    "known", "start", "sent", "emitted", "reject",
)  # fmt: skip
#: What the scheduler can do beyond the least: see CAPABILITIES in preempt_properties/workload.py.
CAPABILITIES = ("abort", "chunked", "small_budget")


class Watched(Scheduler):
    """The scheduler, with a note of what happens inside of a call."""

    def __init__(self, *args: int) -> None:
        super().__init__(*args)
        self.acts: list[dict[str, Any]] = []
        self.finished: list[dict[str, Any]] = []

    def preempt(self, victim: Request, requester: Request, need: int) -> None:
        """A preemption is a demotion, a release and a requeue, `after` so many grants of this step."""
        after, supply, before = len(self.work), len(self.free), Counter(self.free)
        super().preempt(victim, requester, need)
        told = {"request": victim.name, "after": after}
        because = {"cause": "growth", "beneficiaries": [requester.name], "need": need, "supply": supply}
        self.acts.append({"act": "demote", **told, **because})
        blocks = sorted((Counter(self.free) - before).elements())
        self.acts.append({"act": "release", **told, "blocks": [blocks], "computed": victim.computed})
        if victim in self.waiting:
            index = self.waiting.index(victim)
            self.acts.append({"act": "requeue", **told, "queue": "waiting", "index": index, "known": victim.known})

    def finish(self, request: Request) -> None:
        """A request ends, and gives its blocks back."""
        before = Counter(self.free)
        super().finish(request)
        blocks = sorted((Counter(self.free) - before).elements())
        self.finished.append({"request": request.name, "reason": "length", "blocks": [blocks]})


class Adapter(Engine):
    """One scheduler at a time. `start` makes a fresh one, and must forget everything of the last."""

    #: The import name of the scheduler: an exception raised by its files is a finding, any other a broken adapter.
    package = "scheduler"

    def start(self, config: dict[str, Any]) -> Reply:
        """Build the scheduler; refuse what it does not do: a refusal is no verdict, doing something else is."""
        config = fixed(
            config, policy="vllm-fcfs", caching=False, chunked=True, whole_fit=True, long_prefill=0, watermark=0,
            frames=1, drafts=0, host_blocks=0, groups="full",
        )  # fmt: skip
        if config["options"]:
            raise Refused("there are no options")
        if config["max_length"] > config["blocks"] * config["page_size"]:
            raise Refused("max_length exceeds the pool: a lone request would not fit")
        self.scheduler = Watched(config["blocks"], config["page_size"], config["max_running"], config["budget"])
        self.longest, self.frame = config["max_length"], -1
        self.requests: dict[str, Request] = {}
        self.tables: dict[str, list[int]] = {}  # as far as they were told
        self.flying: dict[int, list[Any]] = {}
        return header("my-scheduler", "1", config, OBSERVES, CAPABILITIES)

    def add(self, cmd: Command) -> Reply:
        """A request arrives, or is refused, as your front end would."""
        if not cmd["prompt"] or cmd["max_tokens"] < 1 or len(cmd["prompt"]) + cmd["max_tokens"] > self.longest:
            return {"event": "reject", "request": cmd["request"], "reason": "empty, or longer than the longest"}
        request = self.requests[cmd["request"]] = Request(cmd["request"], list(cmd["prompt"]), cmd["max_tokens"])
        self.scheduler.add(request)
        return arrive(cmd)

    def abort(self, request: str) -> Reply:
        """A live request is cancelled: which blocks really came back, and the books behind it."""
        before = Counter(self.scheduler.free)
        self.scheduler.abort(self.requests.pop(request))
        blocks = sorted((Counter(self.scheduler.free) - before).elements())
        return {"event": "abort", "request": request, "blocks": [blocks], "observed": self.observed()}

    def step(self) -> Reply:
        """One decision. What joined which table is read off the tables; what the worker is told, off its message."""
        s = self.scheduler
        s.acts, again = [], {r.name for r in s.waiting if r.name in self.tables}
        work = s.schedule()
        self.frame += 1
        self.flying[self.frame] = work
        told: Reply = {
            "event": "step",
            "frame": self.frame,
            "requests": [w.request.name for w in work],
            "tokens": [w.tokens for w in work],
            "start": [w.start for w in work],
            "sent": [[w.request.name, 0, w.blocks, w.admitted] for w in work if w.blocks],
            "resumed": [[w.request.name, w.request.known] for w in work if w.admitted and w.request.name in again],
            "blocks": [],
            "acts": s.acts,
            "observed": self.observed(),
        }
        preempted = {act["request"] for act in s.acts}
        for request in [*s.running, *s.waiting]:
            seen = [] if request.name in preempted else self.tables.get(request.name, [])
            if new := request.table[len(seen) :]:
                told["blocks"].append([request.name, 0, new])
            if new or request.name in preempted:
                self.tables[request.name] = list(request.table)
        if not work:
            told["reason"] = "nobody could be granted anything" if s.running or s.waiting else "idle"
        return told

    def deliver(self, cmd: Command) -> Reply:
        """The frame's tokens; what the scheduler made of them is read off its requests."""
        s, work = self.scheduler, self.flying.pop(cmd["frame"])
        flown = {w.request.name: w.request for w in work}
        before = {name: len(request.output) for name, request in flown.items()}
        s.finished = []
        s.update(work, dict(zip(cmd["requests"], cmd["tokens"], strict=True)))
        emitted = [flown[name].output[before[name] :] for name in cmd["requests"]]
        for ended in s.finished:
            self.tables.pop(ended["request"], None)
            del self.requests[ended["request"]]
        return {
            "event": "deliver",
            "frame": cmd["frame"],
            "requests": cmd["requests"],
            "tokens": cmd["tokens"],
            "emitted": emitted,
            "disposition": ["delivered" if some else "dropped" for some in emitted],
            "finished": s.finished,
        }

    def observed(self) -> Reply:
        """The scheduler's own books: they are compared with what was derived, and never believed."""
        s = self.scheduler
        held = [[r.name, len(r.table), r.computed] for r in s.waiting if r.table or r.computed]
        owners = Counter(block for r in [*s.running, *s.waiting] for block in r.table)
        return {
            "free": [len(s.free)],
            "free_ids": [s.free],
            "running": [r.name for r in s.running],
            "waiting": [r.name for r in s.waiting],
            "held": held,
            "refs": [[0, block, count] for block, count in owners.items() if count > 1],
        }

    def stop(self) -> None:
        """Drop the scheduler."""
        del self.scheduler
