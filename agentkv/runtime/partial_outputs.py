"""What branches say while they still decode, as far as it makes the prompt behind their join certain."""

from attrs import evolve

from agentkv.graph.path import Path
from agentkv.runtime.branching import inside
from agentkv.runtime.events import TextDelta
from agentkv.runtime.joining import ahead
from agentkv.runtime.program import NodeProgram, Program
from agentkv.runtime.state import Follow, State

__all__ = ("BLOCKS", "PartialOutputs")

# Text is looked at again when it has grown by two blocks or so: each look may end in a request of its own, which the
# branches that decode share the engine with. Each look reads all of it anew, so long texts are looked at more rarely.
CHARACTERS = 4
BLOCKS = 2


class PartialOutputs:
    """Owns the text of each branch's generation in progress. ``block`` is the engine's, in tokens."""

    def __init__(self, program: Program, block: int) -> None:
        self._program, self._least = program, BLOCKS * block * CHARACTERS
        self._texts: dict[Path, str] = {}
        self._looked: dict[Path, int] = {}

    def begin(self, branch: Path) -> None:
        """A generation of ``branch`` begins."""
        self._texts[branch] = ""
        self._looked[branch] = 0

    def said(self, event: TextDelta, state: State) -> Follow | None:
        """Take note of text; what its join is certain of now, if that is worth a look. ``state`` is the run's."""
        if not event.branch:
            return None
        text = self._texts[event.branch] = self._texts.get(event.branch, "") + event.text
        looked = self._looked.get(event.branch, 0)
        if len(text) - looked < max(self._least, looked // 8):
            return None
        self._looked[event.branch] = len(text)
        found = inside(self._program, state, event.branch[:-1])
        if found is None:
            return None
        program, outer = found
        if outer.branching is None:
            return None
        node = program.branches[event.branch[-1].node].nodes.get(event.node)
        if node is None or not _answers(program, node, text):
            return None
        decoding = {
            each.id.label: self._texts.get((*event.branch[:-1], each.id), "")
            for each in outer.branching.branches
            if each.status == "running"
        }
        follow = ahead(program, outer, decoding)
        return None if follow is None else evolve(follow, branch=(*event.branch[:-1], *follow.branch))


def _answers(program: Program, node: NodeProgram, text: str) -> bool:
    """Whether text that begins so is the branch's output, if nothing goes wrong: no label, no call."""
    if node.shape.labels:
        return False
    return not node.shape.tools or not any(mark in text for mark in program.format.dialect.call_marks)
