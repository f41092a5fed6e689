"""A result of steady loads, read back from its file as far as points of a frontier need it."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from attrs import frozen
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, NonNegativeInt, PositiveInt, ValidationError

from agentkv.bench.columns import printable
from agentkv.bench.frontier import FIGURES, Values
from agentkv.bench.modes import MODES
from agentkv.bench.results import SCHEMA, figure_at
from agentkv.errors import SetupError

__all__ = ("SteadyPoint", "SteadyResult", "read_steady")

Amount = Annotated[FiniteFloat, Field(ge=0)]
# What is the same for all points of a picture. Of a path the last name counts: folders differ from machine to machine.
ENGINE_FIELDS = (
    "name",
    "version",
    "pool_blocks",
    "block_size",
    "max_model_len",
    "kv_bytes_per_token",
    "max_num_batched_tokens",
    "max_num_seqs",
)
# A mode, or a mode with one of several shares of the pool.
NAME = re.compile(f"({'|'.join(map(re.escape, MODES))})(@[0-9.e-]+)?")
# What a file says of the work that is not the work itself.
NOT_WORK = {"pool", "load", "resumes_per_agent"}


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)


class _Times(_Part):
    p50: Amount | None
    p95: Amount | None
    n: NonNegativeInt


class _Censored(_Part):
    after_tool: Amount


class _Spread(_Part):
    values: Annotated[list[Amount], Field(min_length=1)]


class _Config(_Part):
    model_config = ConfigDict(extra="allow")
    cap: PositiveInt | None = None


class _Mode(_Part):
    config: _Config
    in_force: dict[str, Any] = {}
    repetitions: PositiveInt
    window_s: Amount | None
    tasks_per_minute: Amount
    ttft_after_tool_ms: _Times
    ttft_first_ms: _Times
    task_s: _Times
    censored: _Censored
    recomputed_after_eviction: Amount
    spread: dict[str, _Spread | None] = {}


class _Point(_Part):
    agents: PositiveInt
    tasks_per_minute: Amount
    ttft_after_tool_p50_ms: Amount | None
    ttft_after_tool_p95_ms: Amount | None
    tasks: Amount
    turns_after_tool: Amount | None = None
    ttft_first_p95_ms: Amount | None = None
    task_p50_s: Amount | None = None
    censored: Amount | None = None
    recomputed: Amount | None = None
    window_s: Amount | None = None
    spread: dict[str, _Spread | None] = {}


class _Line(_Part):
    points: Annotated[list[_Point], Field(min_length=1)]


class _Frontier(_Part):
    bound_ms: Annotated[FiniteFloat, Field(gt=0)]
    modes: Annotated[dict[str, _Line], Field(min_length=1)]


class _Load(_Part):
    agents: PositiveInt
    duration: Amount
    settle: Amount


class _Workload(_Part):
    model_config = ConfigDict(extra="allow")
    kind: str
    pool: Amount | None = None
    resumes_per_agent: Amount | None = None
    tool_calls: Amount | None = None
    load: _Load | None = None


class _Engine(_Part):
    model_config = ConfigDict(extra="allow")
    spec: str
    name: str
    version: str
    pool_blocks: PositiveInt | None
    options: dict[str, Any] = {}


class _Result(_Part):
    # First: of what is no result at all, this is what is said.
    kind: Literal["agentkv.bench/1"] = Field(alias="schema")
    # Files that do not say were written when all had been measured.
    complete: bool = True
    workload: _Workload
    engine: _Engine
    machine: dict[str, Any]
    modes: Annotated[dict[str, _Mode], Field(min_length=1)]
    frontier: _Frontier | None = None


@frozen
class SteadyPoint:
    """One mode with one number of agents, of which a fixed limit lets ``cap`` be under way (None: there is none).

    ``values`` has of each of ``FIGURES`` one for each repetition, None where it is not told.
    """

    mode: str
    agents: int
    cap: int | None
    values: Values


@frozen
class SteadyResult:
    """What ``file`` holds.

    ``same``: what must be equal for points to be comparable, by the field's name; ``work``: the workload's fields and
    ``engine``'s and ``machine``'s, as they are; ``bound_ms``: the bound that it was measured for, None: for none;
    ``complete``: whether all that was asked for has been measured.
    """

    file: str
    points: tuple[SteadyPoint, ...]
    same: Mapping[str, Any]
    work: Mapping[str, Any]
    engine: Mapping[str, Any]
    machine: Mapping[str, Any]
    bound_ms: float | None
    complete: bool


def read_steady(path: Path) -> SteadyResult:
    """Read a file of ``agentkv bench --duration``, with or without ``--frontier``; series may have been left out.

    Raises ``SetupError``, which names the file and the field, for one that is not there or no such result.
    """
    try:
        found = _Result.model_validate_json(path.read_bytes())
    except OSError as error:
        raise SetupError(f"{str(path)!r} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        raise SetupError(_problem(path, error)) from None
    load = found.workload.load
    if load is None or any(mode.window_s is None for mode in found.modes.values()):
        field = "workload.load" if load is None else "window_s"
        raise SetupError(f"{str(path)!r}: {field} is null: it has no steady window; measure with --duration SECONDS")
    if load.settle >= load.duration:
        raise SetupError(
            f"{str(path)!r}: workload.load.settle is {load.settle:g} s of a workload.load.duration of "
            f"{load.duration:g} s, which leaves no window; measure with a --settle-seconds below --duration"
        )
    for name in (*found.modes, *(found.frontier.modes if found.frontier else ())):
        if not NAME.fullmatch(name) or name not in found.modes:
            raise SetupError(f"{str(path)!r}: modes has no {name!r} that is one of {', '.join(MODES)}")
    return SteadyResult(
        file=str(path),
        points=tuple(_points(found, load.agents)),
        same=dict(_same(found)),
        work=found.workload.model_dump(exclude_unset=True),
        engine=found.engine.model_dump(),
        machine=found.machine,
        bound_ms=found.frontier.bound_ms if found.frontier else None,
        complete=found.complete,
    )


def _problem(path: Path, error: ValidationError) -> str:
    """The first thing that is wrong, as one line."""
    first = error.errors(include_url=False, include_input=False)[0]
    field = printable(".".join(map(str, first["loc"]))) or "the file"
    return (
        f"{str(path)!r} is no result of steady loads ({SCHEMA}): {field}: {first['msg']}; "
        "agentkv bench seed --duration S --json FILE writes one"
    )


def _points(found: _Result, agents: int) -> Iterator[SteadyPoint]:
    if found.frontier is None:
        for name, mode in found.modes.items():
            yield SteadyPoint(name, agents, mode.config.cap, _of_mode(mode))
        return
    for name, line in found.frontier.modes.items():
        mode = found.modes[name]
        # ``modes`` has the figures of the largest load that was measured.
        largest = max(line.points, key=lambda point: point.agents)
        for point in line.points:
            told = _of_mode(mode) if point is largest else {}
            yield SteadyPoint(name, point.agents, mode.config.cap, _of_point(point, told))


def _of_mode(mode: _Mode) -> Values:
    """A mode's figures; where it has those of each repetition, these."""
    plain = mode.model_dump()
    values: dict[str, list[float | None]] = {}
    for name, path in FIGURES.items():
        value = figure_at(plain, path)
        # Numbers of turns and tasks are sums.
        values[name] = [value / mode.repetitions if path[-1] == "n" else value] * mode.repetitions
    return {**values, **_repeated(mode.spread, {name.removesuffix("_ms"): name for name in FIGURES})}


def _of_point(point: _Point, told: Values) -> Values:
    spreads = point.spread.get("tasks_per_minute")
    repetitions = len(spreads.values) if spreads else 1
    plain = point.model_dump()
    values = {name: [plain[name]] * repetitions for name in FIGURES}
    missing = {name: each for name, each in told.items() if plain[name] is None}
    return {**values, **missing, **_repeated(point.spread, {name: name for name in FIGURES})}


def _repeated(spreads: Mapping[str, _Spread | None], names: Mapping[str, str]) -> Values:
    return {names[key]: each.values for key, each in spreads.items() if each is not None and key in names}


def _same(found: _Result) -> Iterator[tuple[str, Any]]:
    load, engine = found.workload.load, found.engine.model_dump()
    yield from (
        (f"workload.{name}", each)
        for name, each in found.workload.model_dump(exclude_unset=True).items()
        if name not in NOT_WORK
    )
    if load is not None:
        yield from (("workload.load.duration", load.duration), ("workload.load.settle", load.settle))
    yield from ((f"engine.{name}", engine[name]) for name in ENGINE_FIELDS if name in engine)
    yield "engine.model", Path(str(engine.get("model"))).name
    yield from ((f"engine.options.{name}", each) for name, each in found.engine.options.items())
    if found.engine.name == "sim":
        # What it is run on does not matter, but which machine is simulated does.
        yield "engine.spec", found.engine.spec
    else:
        yield from ((f"machine.{name}", each) for name, each in found.machine.items())
    for name, mode in found.modes.items():
        as_stock = "stock" if name == "stock+cap" else name
        yield from (
            (f"modes.{as_stock}.config.{key}", each) for key, each in mode.config.model_dump().items() if key != "cap"
        )
        yield from ((f"modes.{as_stock}.in_force.{key}", each) for key, each in mode.in_force.items())
