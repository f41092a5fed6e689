"""Free host memory, from files of either version of control groups."""

from pathlib import Path

from agentkv.engines.host_memory import free_host_bytes

GIB = 1 << 30


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_without_a_group_what_is_available_counts(tmp_path: Path) -> None:
    assert free_host_bytes(7 * GIB, tmp_path) == 7 * GIB


def test_no_limit_is_no_limit(tmp_path: Path) -> None:
    write(tmp_path, memory__max="max\n", memory__current=f"{3 * GIB}\n", memory__stat="")
    assert free_host_bytes(7 * GIB, tmp_path) == 7 * GIB


def test_a_limit_counts_less_what_is_used(tmp_path: Path) -> None:
    write(tmp_path, memory__max=f"{4 * GIB}\n", memory__current=f"{3 * GIB}\n", memory__stat="anon 1\nodd\n")
    assert free_host_bytes(7 * GIB, tmp_path) == GIB
    write(tmp_path, memory__current=f"{5 * GIB}\n")
    assert free_host_bytes(7 * GIB, tmp_path) == 0


def test_cached_files_count_as_free(tmp_path: Path) -> None:
    stat = f"anon 5\nactive_file {GIB}\ninactive_file {GIB}\nfile {2 * GIB}\n"
    write(tmp_path, memory__max=f"{4 * GIB}\n", memory__current=f"{3 * GIB}\n", memory__stat=stat)
    assert free_host_bytes(7 * GIB, tmp_path) == 3 * GIB
    assert free_host_bytes(2 * GIB, tmp_path) == 2 * GIB


def test_version_one_counts_the_totals_alone(tmp_path: Path) -> None:
    stat = f"active_file {GIB}\ninactive_file 0\ntotal_active_file {2 * GIB}\ntotal_inactive_file 0\n"
    write(
        tmp_path / "memory",
        **{"memory.limit_in_bytes": f"{8 * GIB}", "memory.usage_in_bytes": f"{7 * GIB}", "memory.stat": stat},
    )
    assert free_host_bytes(100 * GIB, tmp_path) == 3 * GIB
