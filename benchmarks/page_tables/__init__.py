"""The tables of the documentation that the simulator, or a count over recordings, fills."""

from page_tables import bench, branches, leases, prefill, tier, when
from page_tables.markdown import find_markers, read_table, with_table
from page_tables.table import Row, Table
from page_tables.work import Bench, Call, Work

__all__ = ("TABLES", "Bench", "Call", "Row", "Table", "Work", "find_markers", "read_table", "with_table")

TABLES: tuple[Table, ...] = (
    *leases.TABLES,
    *when.TABLES,
    *tier.TABLES,
    *prefill.TABLES,
    *bench.TABLES,
    *branches.TABLES,
)
