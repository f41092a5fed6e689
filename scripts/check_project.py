"""Check the rules of this project that no linter knows; `make check` runs it and CONTRIBUTING.md lists them."""

import sys
from pathlib import Path

from project_check import documents, exports, layers, parameters, shape, test_names
from project_check.source import load


def main(root: Path) -> int:
    """Print each broken rule on a line of its own; the exit status is 1 when there is any."""
    modules = load(root / "agentkv", "agentkv")
    problems = [
        *layers.check(modules),
        *exports.check(modules),
        *shape.check(modules),
        *parameters.check(modules),
        *documents.check(root),
        *test_names.check(load(root / "tests", "tests")),
    ]
    for problem in problems:
        print(problem)
    print(f"project rules: {len(problems)} broken" if problems else f"project rules hold in {len(modules)} modules")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parent.parent))
