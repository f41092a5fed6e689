"""Compute the tables of the documentation anew, and write them into their pages or say where these are wrong.

    python benchmarks/figures.py                       # write; `make figures`
    python benchmarks/figures.py --check half-the-pool # compare, and fail where a cell differs

Time in these tables is simulated, so that the same code gives the same digits on any machine. A table stands behind
<!-- figures: NAME --> in its page, and page_tables/ has what it is computed by. Tables of real machines have no marker.
Recordings are not in the repository: benchmarks/pack_traces.sh puts those that you have into a folder for --bundle.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from agentkv.errors import AgentKVError
from page_tables import TABLES, Table, Work, read_table, with_table

__all__ = ("main",)

ROOT = Path(__file__).parents[1]
BUNDLE = ROOT / ".bundle"
Found = Mapping[Work, Mapping[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check; 1 where a page is wrong, 2 where it cannot be done."""
    options = _options(arguments)
    tables = list(_chosen(options.names, options.bundle))
    try:
        found = _compute((work for table in tables for work in table.works), options.bundle, options.jobs)
        if not options.check:
            for table in tables:
                _write(table, found)
            return 0
        wrong = [line for table in tables for line in _check(table, found)]
    except AgentKVError as error:
        print(f"figures: {error}", file=sys.stderr)
        return 2
    print("\n".join(wrong or [f"{len(tables)} tables are as computed"]))
    return bool(wrong)


def _chosen(names: Sequence[str], bundle: Path) -> Iterator[Table]:
    """Those named, or all, and a line for each that cannot be computed here."""
    for table in TABLES:
        if names and table.name not in names:
            continue
        if table.recorded and not bundle.is_dir():
            print(f"{table.page}: {table.name} is left as it is: it needs recordings, which --bundle FOLDER names")
        else:
            yield table


def _compute(works: Iterable[Work], bundle: Path, jobs: int) -> Found:
    """What each of ``works`` finds, each done once, so many at a time."""
    wanted = list(dict.fromkeys(works))
    found: dict[Work, Mapping[str, Any]] = {}
    with ProcessPoolExecutor(jobs) as pool:
        futures = {pool.submit(_timed, work, bundle): work for work in wanted}
        for done in as_completed(futures):
            work = futures[done]
            found[work], seconds = done.result()
            print(f"{len(found)} of {len(wanted)}, {seconds:.1f} s of CPU: {work}", file=sys.stderr, flush=True)
    return found


def _timed(work: Work, bundle: Path) -> tuple[Mapping[str, Any], float]:
    before = time.process_time()
    return work.compute(bundle), time.process_time() - before


def _write(table: Table, found: Found) -> None:
    page = ROOT / table.page
    lines = [table.header, *(table.fill(row, found) for row in table.rows)]
    page.write_text(with_table(page.read_text(encoding="utf-8"), table.name, lines), encoding="utf-8")


def _check(table: Table, found: Found) -> list[str]:
    shown = read_table((ROOT / table.page).read_text(encoding="utf-8"), table.name)
    return list(table.misnamed(shown)) or list(table.stale(shown, found))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", help="tables; none: all")
    parser.add_argument("--check", action="store_true", help="write nothing, and say which cells differ")
    parser.add_argument("--bundle", metavar="FOLDER", type=Path, default=BUNDLE, help="recordings (.bundle)")
    parser.add_argument("--jobs", metavar="N", type=int, default=os.cpu_count(), help="processes")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - {table.name for table in TABLES}:
        parser.error(f"there is no table {min(unknown)!r}; there are {', '.join(table.name for table in TABLES)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
