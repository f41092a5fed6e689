"""The entry guard: engines that start processes by *spawn* run the main module again in each of them.

A script that starts its engine outside ``if __name__ == "__main__":`` would start it again in the child.
Python's own message for that speaks of freezing and does not reach the user before vLLM's does, so the
case is found here, before anything is started.
"""

import ast
import multiprocessing
import sys
from pathlib import Path
from types import FrameType, ModuleType

from agentkv.errors import EngineStartError

__all__ = ("require_entry_guard",)

REMEDY = 'put what starts it under `if __name__ == "__main__":`'


def require_entry_guard() -> None:
    """Raise ``EngineStartError`` if a spawned process would run the caller's way here again.

    Call it on the thread that starts the engine.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise EngineStartError(
            f"the engine's own process ran the main module and came to start an engine again: {REMEDY}"
        )
    main = sys.modules.get("__main__")
    if main is None or not _runs_again(main):
        return
    if (frame := _module_frame(main)) is not None and not _guarded(main, frame.f_lineno):
        raise EngineStartError(
            f"{Path(str(main.__file__)).name}, line {frame.f_lineno}: starting an engine runs the main module again "
            f"in the engine's process: {REMEDY}"
        )


def _runs_again(main: ModuleType) -> bool:
    # multiprocessing imports the main module by name (python -m, packages' __main__ excepted) or by path.
    spec = getattr(main, "__spec__", None)
    if spec is not None and (spec.name == "__main__" or spec.name.endswith(".__main__")):
        return False
    return getattr(main, "__file__", None) is not None


def _module_frame(main: ModuleType) -> FrameType | None:
    """The main module's own top-level frame, if the current call came from it."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals is main.__dict__:
            return frame
        frame = frame.f_back
    return None


def _guarded(main: ModuleType, line: int) -> bool:
    try:
        tree = ast.parse(Path(str(main.__file__)).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError):
        # Not source (a zip, a notebook kernel's stub): nothing is known, so nothing is claimed.
        return True
    statements = [node for node in tree.body if node.lineno <= line <= (node.end_lineno or node.lineno)]
    return not statements or any(isinstance(node, ast.If) and _tests_name(node.test) for node in statements)


def _tests_name(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test))
