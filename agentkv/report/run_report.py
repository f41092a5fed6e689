"""A run's report: the ledger of every prompt token, the timeline, and what was left behind."""

from collections import Counter
from typing import Any

from attrs import asdict, frozen

from agentkv.counted import counted
from agentkv.engines.base import EngineInfo
from agentkv.follow import AUTO_LEAST, LEAST_SHARE
from agentkv.report.incident import Incident, incident_lines
from agentkv.report.ledger import LeftOut, Source, Step, Totals
from agentkv.report.timeline import Span, covered, meanwhile, timeline_lines

__all__ = ("RunReport",)

SCHEMA = "agentkv.run/1"
_CAUSES = ("new", "tail", "cold", "evicted", "diverged", "salted", "uncached")
_LEFT_OUT: dict[LeftOut, str] = {
    "short": f"kv_transfer_mode 'auto' leaves out prompts of which less than {AUTO_LEAST} tokens are known",
    "little": f"kv_transfer_mode 'auto' leaves out what would shorten a wait by less than {LEAST_SHARE:.0%}",
    "late": "what became known was asked for before a step of the engine could be spared for it",
    "limit": "branch_prefetch_limit is 0",
    "refused": "the engine had no place for who was to read it",
}


@frozen(kw_only=True)
class RunReport:
    """The account of one run. Tokens are counted by the engine; times are clock seconds.

    ``abandoned`` names tools that were still running when nobody waited for them any more: sync ones in their worker
    thread, and async ones that did not end when they were cancelled. ``refused`` says why the engine gave no lease, or
    less of one, where it did not. ``branches`` are those that ended, by place, and how: ``done``, ``adopted`` (it won
    its join), ``failed`` or ``cancelled``; ``failures`` says why they failed. ``incidents`` sum up, from the run's end
    on, what the engine did to its KV, and to that of others for its requests, beside the ordinary course. ``sources``
    divide what was prefilled ahead by where its text came from. ``left_out``: why known tokens were not prefilled.
    """

    run_id: str
    graph: str
    mode: str
    engine: EngineInfo
    outcome: str
    steps: tuple[Step, ...]
    totals: Totals
    spans: tuple[Span, ...]
    abandoned: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    incidents: tuple[Incident, ...] = ()
    sources: tuple[Source, ...] = ()
    branches: tuple[tuple[str, str], ...] = ()
    failures: tuple[tuple[str, str], ...] = ()
    left_out: LeftOut | None = None

    @property
    def ttft(self) -> tuple[float, ...]:
        """Seconds from ask to first token, by generation."""
        return tuple(span.seconds for span in self.spans if span.kind == "ttft")

    @property
    def ttft_after_tool(self) -> tuple[float, ...]:
        """The same for resumes alone."""
        return tuple(span.seconds for span in self.spans if span.kind == "ttft" and span.after_tool)

    @property
    def overlap(self) -> float:
        """Share of the prefill-ahead time that ran under a tool or a branch; 0 if nothing was prefilled."""
        prefills = [span for span in self.spans if span.kind == "prefill"]
        others = meanwhile(self.spans)
        total = sum(span.seconds for span in prefills)
        under = sum(max((span.inside(other) for other in others), default=0.0) for span in prefills)
        return under / total if total else 0.0

    def saving(self) -> str:
        """One sentence: what prefilling ahead saved, or why it saved nothing."""
        if used := self.totals.prefetched_used:
            # What was used beyond the prefetches that ended was computed by steps that a resume cut off.
            late = max(used - self.totals.prefetched, 0)
            waited = f", at least {late} of them in steps that the resume waited for." if late else None
            return f"{used} tokens were prefilled ahead and used{waited or ': the resume did not wait for them.'}"
        if self.mode in ("off", "prefix"):
            return f"Nothing was prefilled ahead: kv_transfer_mode is {self.mode!r}."
        if self.totals.prefetched or self.totals.aborted:
            return "What was prefilled ahead was not used: it is counted as waste."
        return f"Nothing was prefilled ahead: {self._why_nothing()}."

    def _why_nothing(self) -> str:
        if self.left_out is not None:
            return _LEFT_OUT[self.left_out]
        if any(span.kind == "tool" for span in self.spans):
            return f"less than a whole block of {self.engine.block_size} tokens became known while tools ran"
        if self.branches:
            return "what came after the branches was not known while they ran"
        return "no tool ran, so there was no time to do it in"

    def __str__(self) -> str:
        return self.text()

    def text(self) -> str:
        """The report for a terminal."""
        parts = (self._head(), self._table(), self._sums(), ["timeline", *timeline_lines(self.spans)])
        return "\n".join(line for part in (*parts, incident_lines(self.incidents)) for line in part)

    def _head(self) -> list[str]:
        engine = f"{self.engine.name} {self.engine.version}".strip()
        return [f"run {self.run_id}  {self.graph}  {self.outcome}  kv_transfer_mode={self.mode}  engine={engine}"]

    def _table(self) -> list[str]:
        names = [_name(step) for step in self.steps]
        width = max(14, *(len(name) + 2 for name in names)) if names else 14
        lines = [
            "KV ledger (tokens)",
            f"  {'step':<{width}}{'prompt':>8}{'resident':>10}{'ahead':>7}{'computed':>10}  computed because",
        ]
        for name, step in zip(names, self.steps, strict=True):
            causes = ", ".join(f"{getattr(step, cause)} {cause}" for cause in _CAUSES if getattr(step, cause))
            lines.append(
                f"  {name:<{width}}{step.prompt:>8}{step.resident:>10}{step.prefilled:>7}{step.computed:>10}  {causes}"
            )
        return lines

    def _sums(self) -> list[str]:
        t = self.totals
        aborted = f", at most {t.aborted} in steps cut off" if t.aborted else ""
        upkeep = f"; {t.upkeep} to keep leases" if t.upkeep else ""
        after_tools = f"of which after tools {sum(self.ttft_after_tool):.3f}s"
        lines = [
            f"  prefilled ahead {t.prefetched}{aborted}; used {t.prefetched_used}; waste {t.wasted}{upkeep}",
            f"  prefill token reduction: critical path {t.reduction_critical:.1%}, total {t.reduction_total:.1%}",
            f"  {self.saving()}",
            f"time  tools {covered(self.spans, 'tool'):.3f}s  decode {covered(self.spans, 'decode'):.3f}s",
            f"      first tokens {sum(self.ttft):.3f}s, {after_tools}; overlap {self.overlap:.0%}",
        ]
        if self.branches:
            lines.append(f"branches  {', '.join(f'{place} {status}' for place, status in self.branches)}")
        lines += [f"  {place} failed: {why}" for place, why in self.failures]
        if {each.name for each in self.sources} - {"certain"}:
            told = ", ".join(f"{each.name} {each.prefetched} ({each.used} used)" for each in self.sources)
            lines.insert(1, f"  of that, by source: {told}")
        if self.abandoned:
            lines.append(f"  left running: {', '.join(self.abandoned)}")
        for reason, times in Counter(self.refused).items():
            lines.append(f"  no lease, {counted(times, 'time')}: {reason}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON-compatible dict; its first field names the schema."""
        engine = asdict(self.engine)
        return {
            "schema": SCHEMA,
            "run": self.run_id,
            "graph": self.graph,
            "mode": self.mode,
            "outcome": self.outcome,
            "engine": {**engine, "capabilities": dict(self.engine.capabilities)},
            "steps": [{**asdict(step), "computed": step.computed} for step in self.steps],
            "totals": {
                **asdict(self.totals),
                "reduction": {"critical": self.totals.reduction_critical, "total": self.totals.reduction_total},
            },
            "ttft_s": list(self.ttft),
            "ttft_after_tool_s": list(self.ttft_after_tool),
            "overlap": self.overlap,
            "spans": [asdict(span) for span in self.spans],
            "abandoned": list(self.abandoned),
            "refused": list(self.refused),
            "sources": [asdict(each) for each in self.sources],
            "kv_incidents": [asdict(each) for each in self.incidents],
            "branches": [{"branch": place, "status": status} for place, status in self.branches],
            "failures": [{"branch": place, "why": why} for place, why in self.failures],
            "saving": self.saving(),
            "left_out": self.left_out,
        }


def _name(step: Step) -> str:
    return f"{step.branch}>{step.node}#{step.visit}" if step.branch else f"{step.node}#{step.visit}"
