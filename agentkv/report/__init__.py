"""What a run cost and where its time went: the ledger of every token, the timeline, the report."""

from agentkv.report.incident import Incident, incident_lines, incidents
from agentkv.report.ledger import Ask, Ledger, Step, Totals
from agentkv.report.residency import Residency
from agentkv.report.run_report import RunReport
from agentkv.report.timeline import Span

__all__ = (
    "Ask",
    "Incident",
    "Ledger",
    "Residency",
    "RunReport",
    "Span",
    "Step",
    "Totals",
    "incident_lines",
    "incidents",
)
