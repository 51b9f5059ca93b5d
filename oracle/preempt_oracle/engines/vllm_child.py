"""vLLM's v1 scheduler, the real one, behind the adapter protocol.

Run by path in a Python that has vLLM and torch on its path: `python vllm_child.py`. One full-attention group, FCFS and
PRIORITY. One frame at a time is synchronous scheduling; two are `AsyncScheduler`, F > 2 are that with F - 1 pipeline
stages and the V2 runner, as vLLM itself flies them; with the option `pipeline` it is the synchronous scheduler with F
stages. `vllm_build` makes the scheduler, `vllm_watch` looks into it, `vllm_async` keeps what flies, `vllm_telling`
makes events of it, this file speaks.

Checks of vLLM's front end that never reach the scheduler are mirrored in `add`, and say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.child import Command, Engine, Refused, Reply, claim, header, serve
else:
    from child import Command, Engine, Refused, Reply, claim, header, serve

if __name__ == "__main__":
    claim()  # before the imports below: vLLM prints while it is imported

if TYPE_CHECKING:
    from preempt_oracle.engines import vllm_async_features as features
    from preempt_oracle.engines import vllm_build as build
    from preempt_oracle.engines import vllm_connectors as connectors
    from preempt_oracle.engines.faults import inject
    from preempt_oracle.engines.vllm_async import Flights
    from preempt_oracle.engines.vllm_books import Books
    from preempt_oracle.engines.vllm_faults import faults
    from preempt_oracle.engines.vllm_offload import OBSERVES as OBSERVES_HOST
    from preempt_oracle.engines.vllm_offload import Offload
    from preempt_oracle.engines.vllm_offload_faults import FAULTS as OFFLOAD_FAULTS
    from preempt_oracle.engines.vllm_simple_faults import FAULTS as SIMPLE_FAULTS
    from preempt_oracle.engines.vllm_telling import Teller
    from preempt_oracle.engines.vllm_traits import VERSION, listed, traits
    from preempt_oracle.engines.vllm_watch import Watch
else:
    import vllm_alone  # noqa: F401 - before vLLM: its environment
    import vllm_async_features as features
    import vllm_build as build
    import vllm_connectors as connectors
    from faults import inject
    from vllm_async import Flights
    from vllm_books import Books
    from vllm_faults import faults
    from vllm_offload import OBSERVES as OBSERVES_HOST
    from vllm_offload import Offload
    from vllm_offload_faults import FAULTS as OFFLOAD_FAULTS
    from vllm_simple_faults import FAULTS as SIMPLE_FAULTS
    from vllm_telling import Teller
    from vllm_traits import VERSION, listed, traits
    from vllm_watch import Watch

CAPABILITIES = (
    "abort",
    "caching",
    "chunked",
    "long_prefill",
    "priority",
    "salt",
    "unchunked",
    "whole_fit",
)
#: What not every version can do.
FEATURES: Mapping[str, Callable[[], bool]] = {
    "frames": features.can_fly,
    "drafts": features.can_draft,
    "reset": features.can_reset,
    "pause": features.can_pause,
    "v2_runner": lambda: "v2-runner" in traits(),
    "watermark": lambda: "watermark" in traits(),
}
CONNECTOR_FAULTS = {"offloading": OFFLOAD_FAULTS, "simple": SIMPLE_FAULTS}
MIRRORED = "vLLM's front end, mirrored by this adapter"


class Vllm(Engine):
    """One vLLM scheduler, and the frames that were dispatched and not yet delivered."""

    watch: Watch | None = None

    def start(self, config: dict[str, Any]) -> Reply:
        """A fresh scheduler with this configuration, refused where vLLM itself refuses to start."""
        self.stop()
        # With a connector the faults are the connector's.
        connector = (config.get("options") or {}).get("connector") or ""
        offloads = connector in CONNECTOR_FAULTS
        self.injection = inject(config, CONNECTOR_FAULTS[connector] if offloads else faults(traits()))
        shape = build.parse(config)
        scheduler = build.build(shape)
        self.shape = shape
        self.scheduler = scheduler
        if self.injection is not None and (shape.host_blocks or not offloads):
            self.injection.put(scheduler)  # before the watch, which then sits on top of it
        self.books = Books(scheduler, traits())
        self.offload: Offload | None = None
        self.idle: list[tuple[int, Any]] = []  # steps that ran nothing, and their frames, not heard of yet
        if shape.host_blocks:
            seed = int(config.get("seed", 0))
            self.offload = Offload(
                scheduler,
                shape.connector,
                shape.page_size,
                shape.host_blocks,
                shape.stages,
                seed,
                failing=shape.failing_loads,
            )
            self.books.offload = self.offload
        self.watch = Watch(self.books, shape.page_size, self.offload)
        self.flights = Flights(scheduler, shape.stages if shape.ahead else 1)
        self.teller = Teller(self.watch, self.flights, traits())
        assumes = [f"reject: checks of {MIRRORED}"]
        if not listed():
            assumes.append("unverified version")
        if shape.outside_contract:
            assumes.append("outside_contract: vLLM's refusal of a maximum length beyond the pool was passed over")
        if shape.stages > 1:
            runner = "the V2 runner" if shape.ahead else "nothing scheduled ahead"
            assumes.append(f"frames: {shape.stages} pipeline stages and {runner}")
        limits = {**config, "whole_fit": build.whole_fit(scheduler, shape)}
        can = CAPABILITIES + tuple(name for name, known in FEATURES.items() if known())
        observes = self.teller.observes()
        if shape.connector:
            can = (*can, "offload")
        if self.offload is not None:
            assumes.append(f"copies: {connectors.NAMES[shape.connector]}, with a worker that this adapter plays")
            observes += OBSERVES_HOST
        told = header("vllm", VERSION, limits, observes, can, reserved=1, assumes=assumes)
        if self.offload is not None:
            told["pools"].append({"tier": "host", "group": 0, "total": shape.host_blocks})
        return told

    def held_by_copies(self) -> str:
        """Whether the connector itself references blocks; "" if it does not."""
        holds = self._watch().holds
        return "a copy" if holds is not None and holds.pins else ""

    def stop(self) -> None:
        """Drop the scheduler."""
        if self.watch is not None:
            self.watch.close()
            if self.injection is not None:
                self.injection.remove()
            shutdown = getattr(self.scheduler, "shutdown", None)
            self.watch = None
            del self.scheduler
            if shutdown is not None:
                shutdown()

    def add(self, cmd: Command) -> Reply:
        """Hand a request to the scheduler as the front end would, or reject it as the front end would."""
        name, prompt, limit = cmd["request"], cmd["prompt"], cmd["max_tokens"]
        if name in self.scheduler.requests or self.flights.carries(name):
            # vLLM's front end makes every id unique, so reusing one that is alive is no workload it could get.
            raise Refused(f"request {name!r} is alive, or its last frame still flies")
        longest = self.shape.max_length
        reason = ""
        if not prompt:
            reason = "the prompt is empty"
        elif len(prompt) > longest - 1:
            reason = f"a prompt of {len(prompt)} tokens and one output exceed the maximum length of {longest}"
        elif limit < 1:
            reason = f"max_tokens must be at least 1, got {limit}"
        if reason:
            return {"event": "reject", "request": name, "reason": f"{reason} ({MIRRORED})"}
        request = build.request(self.shape, cmd)
        self.scheduler.add_request(request)
        return {
            "event": "arrive",
            "request": name,
            "prompt": prompt,
            "max_tokens": request.max_tokens,
            "priority": request.priority,
            "arrival": cmd.get("arrival", 0),
            "salt": cmd.get("salt", ""),
        }

    def abort(self, request: str) -> Reply:
        """Cancel a request wherever it is; of one that is gone already vLLM says nothing, and frees nothing."""
        watch = self._watch()
        watch.finished.clear()
        if self.offload is not None:
            self.offload.hits.pop(request, None)
        self.scheduler.finish_requests(request, build.ABORTED)
        blocks = [block for _, _, ids in watch.finished for block in ids]
        watch.finished.clear()
        self.teller.told.discard(request)
        reply: Reply = {"event": "abort", "request": request, "blocks": [blocks], **self.teller.until(request)}
        if watch.holds is not None:
            kept = watch.tables.get(request)
            if kept and request in self.scheduler.requests:
                watch.holds.keeps(request, kept)
            reply["acts"] = watch.labels()
        return reply | {"observed": self.books.observed()}

    def control(self, cmd: Command) -> Reply:
        """`reset`: empty the prefix cache, preempting whoever runs, as after a change of weights. `pause`, `resume`."""
        kind: str = cmd["kind"]
        acts: list[dict[str, Any]] = []
        watch = self._watch()
        if kind == "reset" and features.can_reset():
            if self.shape.frames == 1 and len(self.flights):
                raise Refused(f"synchronous scheduling: frame {self.teller.frame} must be delivered before a reset")
            if self.offload is not None and (holder := self.offload.holds() or self.held_by_copies()):
                # vLLM raises, and says why: with somebody preempted already, and nothing reset.
                raise Refused(f"reset: vLLM does not support it while {holder} holds blocks")
            watch.begin()
            # After a change of weights what the host holds is as wrong as what the device does.
            more = {} if self.offload is None else {"reset_connector": True}
            self.scheduler.reset_prefix_cache(reset_running_requests=True, **more)
            if self.offload is not None:
                self.offload.look()
            _, acts, _ = watch.take({})
        elif kind in ("pause", "resume") and features.can_pause():
            features.pause(self.scheduler, kind == "pause")
        else:
            return super().control(cmd)
        return {"event": "control", "kind": kind, "acts": acts}

    def step(self) -> Reply:
        """One call of `schedule`."""
        if len(self.flights) >= self.shape.frames:
            # The engine core never schedules before there is room for one more batch.
            raise Refused(f"{self.shape.frames} frames fly: one must be delivered first")
        self.teller.before()
        output = self.scheduler.schedule()
        reply = self.teller.step(output)
        return reply if self.offload is None else self._copied(self.offload, output, reply)

    def _copied(self, offload: Offload, output: Any, reply: Reply) -> Reply:
        """A step, with what the worker makes of the connector's message."""
        names = reply["requests"]
        given = {block: name for name, _, blocks in reply["blocks"] for block in blocks}
        given |= {block: act["request"] for act in reply["acts"] if act["act"] == "load" for block in act["blocks"][0]}
        starts = dict(zip(names, reply.get("start", ()), strict=False))
        earlier, acts, later, free = offload.dispatch(self.teller.frame, output, reply["sent"], starts, given)
        for name in names:
            offload.hits.pop(name, None)
        if not names:
            self.idle.append((self.teller.frame, output))
            later += self._reported(offload)
        reply["acts"] += [{**act, "after": len(names)} for act in acts]
        reply["observed"]["host_free"] = [free]
        return reply | {"earlier": earlier, "later": later}

    def _reported(self, offload: Offload) -> list[dict[str, Any]]:
        """What came of steps that ran nothing: a worker with nothing to run reports all the same, in its turn."""
        later: list[dict[str, Any]] = []
        while self.idle and self.idle[0][0] < min(self.flights.frames, default=self.teller.frame + 1):
            frame, output = self.idle.pop(0)
            copied, done = offload.report(frame)
            self._watch().finished.clear()
            self.scheduler.update_from_output(output, features.runner_output({}, copied))
            later += done
            later += [{"event": "finish", **over} for over in self.teller.finished()]
        return later

    def deliver(self, cmd: Command) -> Reply:
        """Hand the frame's sampled tokens to `update_from_output`, and what a drafter would propose behind them."""
        proposed = cmd.get("proposed")
        landing = self.flights.comes_back(cmd["frame"], cmd["requests"], cmd["tokens"])
        self._watch().finished.clear()
        copied, earlier = None, list[dict[str, Any]]()
        if self.offload is not None:
            copied, earlier = self.offload.report(cmd["frame"])
        answer = features.runner_output(landing.sampled, copied)
        outputs = self.scheduler.update_from_output(landing.frame.output, answer)
        reply = self.teller.deliver(cmd["frame"], cmd["requests"], cmd["tokens"], landing.landed(outputs))
        if earlier:
            reply["earlier"] = earlier
        if self.offload is not None and (later := self._reported(self.offload)):
            reply["later"] = later
        if proposed is not None and self.shape.frames == 1 and self.shape.drafts:
            self.scheduler.update_draft_token_ids(features.draft_tokens(cmd["requests"], proposed))
            reply["proposed"] = [*proposed, *([0] * (len(reply["requests"]) - len(proposed)))]
        return reply

    def _watch(self) -> Watch:
        assert self.watch is not None, "commands come after a start"
        return self.watch


if __name__ == "__main__":
    serve(Vllm(), "vllm")
