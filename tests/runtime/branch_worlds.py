"""Random graphs of forks, spawns and joins; a model whose words depend on all of its prompt; a sequential oracle."""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen
from hypothesis import strategies as st

import agentkv as akv
from agentkv.chain import ChatFormat, Message, ToolDefinition
from agentkv.engines.sim import MODEL_PATH
from agentkv.graph import AllOf, Branches, CompiledGraph, First, Join, Summary, all_of, first, summary, winner
from agentkv.graph.bodies import JUDGING
from agentkv.testing import call, label, say

__all__ = ("AGENTS", "CHAT", "Model", "Oracle", "definitions", "graphs")

LABELS = ("left", "middle", "right")
CHAT = ChatFormat.load(MODEL_PATH)


@akv.tool
async def look(ctx: akv.Context[None], seconds: float) -> str:
    """Look, for so many seconds."""
    await ctx.sleep(seconds)
    return f"seen after {seconds:g}"


@akv.tool
async def broken() -> str:
    """Does not work."""
    raise akv.ToolError("broken")


AGENTS = [akv.Agent(f"agent {n}", instructions=f"You are {n}. " * 20, tools=[look, broken]) for n in range(2)]


def definitions(agent: akv.Agent[Any, Any]) -> tuple[ToolDefinition, ...]:
    return tuple(
        ToolDefinition(name=tool.name, description=tool.description, parameters=dict(tool.parameters))
        for tool in agent.tools
    )


def shortest(outputs: Mapping[str, str]) -> str:
    return min(outputs, key=lambda name: (len(outputs[name]), name))


gathering = st.one_of(
    st.sampled_from(AGENTS).map(summary),
    st.builds(
        all_of,
        at_least=st.sampled_from([None, None, 1]),
        timeout=st.sampled_from([None, None, 4.0]),
        on_error=st.sampled_from([None, "fail", "drop", "collect"]),
        order=st.sampled_from(["declared", "arrival"]),
    ),
)
adopting = st.one_of(
    st.just(first()),
    st.just(winner(choose=shortest)),
    st.sampled_from(AGENTS).map(lambda agent: winner(judge=agent)),
)


@st.composite
def graphs(draw: st.DrawFn, depth: int = 2, name: str = "g") -> akv.Graph[None, str]:
    """A generation, then up to two forks or spawns, each with its join and another generation; nested to ``depth``."""
    graph = akv.Graph(name)
    node: Any = graph.plan("start", draw(st.sampled_from(AGENTS)), tool_choice="none")
    graph.path(akv.START, node)
    for number in range(draw(st.integers(depth - 1, 2))):
        source, join = _branches(graph, f"{name}{number}", draw, depth)
        after = graph.replan(f"then {number}", draw(st.sampled_from(AGENTS)), tool_choice="none")
        graph.path(node, source)
        graph.path(join, after)
        node = after
    graph.path(node, akv.END)
    return graph


def _branches(graph: akv.Graph[None, str], name: str, draw: st.DrawFn, depth: int) -> tuple[Any, Any]:
    body = draw(graphs(depth=depth - 1, name=f"{name}-")) if depth > 1 and draw(st.booleans()) else None
    labels = LABELS[: draw(st.integers(1, 3))]
    on_error = draw(st.sampled_from(["fail", "drop", "collect"]))
    if draw(st.booleans()):
        target = body or draw(st.sampled_from(AGENTS))
        source = graph.spawn(f"spawn {name}", target, over=labels, prompt="Look {}. ".format, on_error=on_error)
        return source, graph.join(f"join {name}", source, draw(gathering))
    given = {each: f"Go {each}. " * 3 for each in labels}
    source = graph.fork(f"fork {name}", given, on_error=on_error, body=body, agent=draw(st.sampled_from(AGENTS)))
    return source, graph.join(f"join {name}", source, draw(st.one_of(gathering, adopting)))


def hashed(*what: object) -> int:
    return zlib.crc32(repr(what).encode())


@frozen
class Model:
    """What is said where: by the place, and by every character of the prompt."""

    seed: int

    def __call__(self, prompt: str, tag: str) -> Any:
        return self.turn(prompt, tag.rsplit("/", 2)[1])

    def turn(self, prompt: str, place: str) -> Any:
        branch, _, node = place.rpartition(">")
        words = f"{hashed(prompt):x} at {place}. " * (1 + hashed(self.seed, place) % 9)
        if branch.endswith(".judge"):
            shown = prompt.split("<|im_start|>user\n")[-2].splitlines()
            allowed = [name for name in LABELS if f"{name}:" in shown]
            return label(allowed[hashed(self.seed, prompt) % len(allowed)], words)
        if node != "plan" or branch.endswith(".summary"):
            return say(words)
        chance = hashed(self.seed, branch) % 6
        if chance == 0:
            return call("broken")
        return call("look", seconds=float(hashed(branch, self.seed) % 7)) if chance < 3 else say(words)


@frozen
class Oracle:
    """Runs graphs in sequence, from conversations alone. What depends on time is given, by place: how each branch
    ended and with which error, and in which order those of a fork did.
    """

    model: Model
    statuses: Mapping[str, str]
    errors: Mapping[str, str]
    orders: Mapping[str, Sequence[str]]

    def run(
        self, graph: CompiledGraph[Any, Any], messages: list[Message], place: str = ""
    ) -> tuple[list[Message], str]:
        """The conversation at the end, and the answer."""
        at, text = graph.start, messages[-1].content
        while at != akv.END:
            node = graph.nodes[at]
            if isinstance(node, Branches):
                join = graph.join_of(at)
                messages, text = self._join(graph, node, join, messages, place)
                at = graph.after(join.name)
            elif node.agent is not None:
                messages, text, at = self._generate(graph, at, messages, place)
            else:
                at = graph.after(at)
        return messages, text

    def _generate(
        self, graph: CompiledGraph[Any, Any], name: str, messages: list[Message], place: str
    ) -> tuple[list[Message], str, str]:
        agent = graph.nodes[name].agent
        assert agent is not None
        turn = self._say(agent, messages, f"{place}>{name}" if place else name)
        if not turn.calls:
            said = Message(role="assistant", content=turn.text)
            return [*messages, said], turn.text, graph.after_generation(name, None, False)
        number = 1 + sum(len(message.calls) for message in messages)
        made = akv.ToolCall(f"call_{number:04}", turn.calls[0].name, turn.calls[0].arguments)
        assert made.name == "look", "a branch that calls the broken tool is not done"
        seconds = float(made.arguments.partition(":")[2].strip("}"))
        result = Message(role="tool", content=f"seen after {seconds:g}", call_id=made.id, name="look")
        return (
            [*messages, Message(role="assistant", content="", calls=(made,)), result],
            "",
            graph.after_generation(name, None, True),
        )

    def _say(self, agent: akv.Agent[Any, Any], messages: Sequence[Message], place: str) -> Any:
        ids = CHAT.render(agent.instructions, definitions(agent), messages)
        return self.model.turn(CHAT.tokenizer.decode(ids), place)

    def _join(
        self, graph: CompiledGraph[Any, Any], node: Branches, join: Join, messages: list[Message], place: str
    ) -> tuple[list[Message], str]:
        at, body = f"{place}>{node.name}" if place else node.name, graph.bodies[node.name]
        trunk = [] if node.kind == "spawn" else messages
        done = {
            name: self.run(body, [*trunk, Message(role="user", content=text)], f"{at}.{name}")
            for name, text in node.declared
            if self.statuses[f"{at}.{name}"] in ("done", "adopted")
        }
        beside = f"{place}>{join.name}" if place else join.name
        if join.adopts:
            return done[
                self._winner(graph, join, messages, {name: text for name, (_, text) in done.items()}, at, beside)
            ]
        text = self._gathered(node, join, {name: text for name, (_, text) in done.items()}, at)
        if isinstance(join.strategy, Summary):
            asked = [*messages, Message(role="user", content=text)]
            _, text = self.run(graph.bodies[join.name], asked, f"{beside}.summary")
        return [*messages, Message(role="user", content=text)], text

    def _winner(
        self,
        graph: CompiledGraph[Any, Any],
        join: Join,
        messages: list[Message],
        outputs: dict[str, str],
        at: str,
        beside: str,
    ) -> str:
        if isinstance(join.strategy, First):
            return next(name for name in self._order(at, outputs) if name in outputs)
        judge = join.strategy.judge if not isinstance(join.strategy, AllOf | Summary) else None
        if len(outputs) == 1 or judge is None:
            return shortest(outputs)
        agent = graph.bodies[join.name].nodes["judge"].agent
        assert agent is not None
        asked = [Message(role="user", content=_text(outputs)), Message(role="user", content=JUDGING)]
        chosen: str = self._say(agent, [*messages, *asked], f"{beside}.judge>judge").label
        return chosen

    def _gathered(self, node: Branches, join: Join, outputs: dict[str, str], at: str) -> str:
        strategy = join.strategy
        errors = (isinstance(strategy, AllOf) and strategy.on_error) or node.on_error
        arrived = isinstance(strategy, AllOf) and strategy.order == "arrival"
        names = [name for name, _ in node.declared]
        order = self._order(at, names) if arrived else names
        if errors == "collect":
            outputs |= {
                name: f"failed: {self.errors[f'{at}.{name}']}" for name in order if f"{at}.{name}" in self.errors
            }
        return _text({name: outputs[name] for name in order if name in outputs})

    def _order(self, at: str, names: Iterable[str]) -> list[str]:
        """Names as their branches ended; the last one, with which the join went on, was not seen waiting."""
        seen = self.orders.get(at, ())
        return [*seen, *(name for name in names if name not in seen and self.statuses[f"{at}.{name}"] != "cancelled")]


def _text(outputs: Mapping[str, str]) -> str:
    return "\n\n".join(f"{name}:\n{text}" for name, text in outputs.items())
