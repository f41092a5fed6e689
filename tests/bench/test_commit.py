"""The commit in a result: that of agentkv's own checkout, or what the environment says."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv.bench import page
from agentkv.bench.commit import COMMIT_VARIABLE, commit_of

OURS = '[project]\nname = "agentkv"\n'
TOLD = "told by the environment"


@pytest.fixture(autouse=True)
def _told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMMIT_VARIABLE, f" {TOLD}\n")


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    return subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True, timeout=30
    ).stdout.strip()


def checkout(folder: Path, project: str, package: str) -> tuple[Path, str]:
    """A repository at ``folder`` with a package in it: that package's folder, and the commit."""
    (folder / package).mkdir(parents=True)
    (folder / package / "__init__.py").write_text("", encoding="utf-8")
    (folder / "pyproject.toml").write_text(project, encoding="utf-8")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "all of it")
    return folder / package, git(folder, "rev-parse", "HEAD")


def test_a_checkout_is_named_in_full_and_as_dirty_where_tracked_files_differ(tmp_path: Path) -> None:
    package, commit = checkout(tmp_path, OURS, "agentkv")
    git(tmp_path, "tag", "-a", "-m", "a tag", "v1")
    (tmp_path / "notes.txt").write_text("not tracked", encoding="utf-8")
    assert len(commit) == 40
    assert commit_of(package) == commit
    (package / "__init__.py").write_text("changed = True\n", encoding="utf-8")
    assert commit_of(package) == f"{commit}-dirty"


def test_another_repository_in_the_environment_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, commit = checkout(tmp_path / "ours", OURS, "agentkv")
    checkout(tmp_path / "other", "[project]\nname = 'other'\n", "other")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "other"))
    assert commit_of(package) == commit


@pytest.mark.parametrize("package", ["venv/lib/site-packages/agentkv", "agentkv"])
@pytest.mark.parametrize("project", ["[project]\nname = 'other'\n", "project = 3", "no [toml"])
def test_an_installation_inside_of_another_repository_is_not_its_commit(
    tmp_path: Path, package: str, project: str
) -> None:
    assert commit_of(checkout(tmp_path, project, package)[0]) == TOLD


def test_without_git_or_where_it_refuses_the_environment_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, commit = checkout(tmp_path / "whole", OURS, "agentkv")
    assert commit_of(package) == commit
    (tmp_path / "agentkv").mkdir()
    (tmp_path / "pyproject.toml").write_text(OURS, encoding="utf-8")
    (tmp_path / ".git").write_text("gitdir: /nowhere\n", encoding="utf-8")
    assert commit_of(tmp_path / "agentkv") == TOLD
    monkeypatch.setenv("PATH", "")
    assert commit_of(package) == TOLD
    monkeypatch.delenv(COMMIT_VARIABLE)
    assert commit_of(package) is None


def test_a_result_and_its_page_say_it_where_it_is_known(
    bench: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkv.bench.runner.own_commit", lambda: "abc<i>")
    result = bench("stock", chains=1)
    assert result["versions"]["commit"] == "abc<i>"
    assert "(commit abc&lt;i&gt;)" in page(result)
    monkeypatch.setattr("agentkv.bench.runner.own_commit", lambda: None)
    result = bench("stock", chains=1)
    assert "commit" not in result["versions"]
    assert "commit" not in page(result)
