"""The commit that the code which measures was at."""

import os
import shutil
import subprocess
import tomllib
from functools import cache
from pathlib import Path

__all__ = ("COMMIT_VARIABLE", "commit_of", "own_commit")

COMMIT_VARIABLE = "AGENTKV_COMMIT"
SECONDS = 10.0
# Of two spellings of the hash the full one, of tags none, and "-dirty" behind it where tracked files differ.
DESCRIBE = ("--no-optional-locks", "describe", "--always", "--no-abbrev", "--exclude=*", "--dirty")


@cache
def own_commit() -> str | None:
    """The commit of the code that runs here, as ``commit_of`` tells it; asked once, since git takes its time."""
    return commit_of(Path(__file__).parents[1])


def commit_of(package: Path) -> str | None:
    """The full hash of the git checkout that the folder ``package`` lies in; ``-dirty``: tracked files differ.

    Where there is none, or git cannot read it, what the environment variable ``AGENTKV_COMMIT`` says; None without.
    Only a checkout of agentkv itself counts: a package installed somewhere inside of another is not from there.
    """
    return _described(package.resolve().parent) or os.environ.get(COMMIT_VARIABLE, "").strip() or None


def _described(top: Path) -> str | None:
    git = shutil.which("git")
    if git is None or not (top / ".git").exists() or not _is_ours(top / "pyproject.toml"):
        return None
    # A hook of git has variables in its environment that name another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            [git, "-C", str(top), *DESCRIBE],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _is_ours(file: Path) -> bool:
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project")
    except (OSError, ValueError):
        return False
    return isinstance(project, dict) and project.get("name") == "agentkv"
