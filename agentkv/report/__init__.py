"""What a run cost and where its time went: the ledger of every token, the timeline, the report."""

from agentkv.report.advice import Advice, Answer, Memory, advise
from agentkv.report.demand import Ahead, Demand, RecordedPrompt, demand_of
from agentkv.report.early import Early
from agentkv.report.incident import Incident, incident_lines, incidents
from agentkv.report.ledger import Ask, Ledger, LeftOut, Source, Step, Totals
from agentkv.report.recorded import prompts_of_journal, prompts_of_sessions, prompts_of_trajectories
from agentkv.report.residency import BlockFate, Residency
from agentkv.report.run_report import RunReport
from agentkv.report.timeline import Span

__all__ = (
    "Advice",
    "Ahead",
    "Answer",
    "Ask",
    "BlockFate",
    "Demand",
    "Early",
    "Incident",
    "Ledger",
    "LeftOut",
    "Memory",
    "RecordedPrompt",
    "Residency",
    "RunReport",
    "Source",
    "Span",
    "Step",
    "Totals",
    "advise",
    "demand_of",
    "incident_lines",
    "incidents",
    "prompts_of_journal",
    "prompts_of_sessions",
    "prompts_of_trajectories",
)
