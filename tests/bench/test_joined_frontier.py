"""One frontier of several results: which of them go together, and what the table and the picture say."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from agentkv.bench import frontier_picture
from agentkv.bench.joined_frontier import JoinedFrontier, join_results, joined_lines
from agentkv.bench.steady_result import read_steady
from agentkv.cli import main
from agentkv.errors import SetupError

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
QUARTER = ("stock-25", "stock-30", "tier-30", "tier-36", "tier-45")
HALF = ("stock-40", "stock-50", "tier-60")
Result = dict[str, Any]
Write = Callable[..., Path]


def kept(pool: int, *names: str) -> list[Path]:
    return [RESULTS / f"2026-11-30-h200-steady-pool{pool}-{name}.json" for name in names]


def joined(*paths: Path, **how: Any) -> JoinedFrontier:
    return join_results([read_steady(path) for path in paths], **how)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A file with the result of stock and 25 agents as it was kept, changed."""

    def make(name: str, change: Callable[[Result], object] = lambda _: None, of: str = "stock-25") -> Path:
        result = json.loads(kept(25, of)[0].read_text(encoding="utf-8"))
        change(result)
        (tmp_path / name).write_text(json.dumps(result), encoding="utf-8")
        return tmp_path / name

    return make


def measured(rate: float, p95: float, *, agents: int = 25, **config: Any) -> Callable[[Result], None]:
    """A run of one load, without a frontier, that gave these figures."""

    def change(result: Result) -> None:
        result["frontier"] = None
        result["workload"]["load"]["agents"] = agents
        (mode,) = result["modes"].values()
        mode["tasks_per_minute"] = rate
        mode["ttft_after_tool_ms"]["p95"] = p95
        mode["spread"] = {}
        mode["config"].update(config)

    return change


@pytest.mark.parametrize(("pool", "names"), [(25, QUARTER), (50, HALF)])
def test_the_table_of_the_gpu_page_is_what_the_kept_results_say(pool: int, names: tuple[str, ...]) -> None:
    page = (ROOT / "benchmarks" / "gpu.md").read_text(encoding="utf-8")
    lines = joined_lines(joined(*kept(pool, *names)))
    rows = [re.split(r"\s{2,}", line) for line in lines[2 : 2 + len(names)]]
    assert len(rows) == len(names)
    for mode, agents, rate, turns, p50, p95, recomputed, tasks, runs in rows:
        title = "`stock` = `stock+cap`" if mode == "stock" else f"`{mode}`"
        assert f"| {pool} % | {title} | {agents} | {rate} | {turns} | {p50} / {p95} | {recomputed} |" in page
        assert int(tasks) >= 35
        assert runs == "1"
    assert (
        lines[-1]
        == {
            25: "bidirectional+tier/stock: tasks per minute 1.34, by turns 1.29",
            50: "bidirectional+tier/stock: tasks per minute 1.13, by turns 1.25",
        }[pool]
    )


def test_a_run_of_one_load_is_a_point_as_one_of_a_frontier_is(write: Write) -> None:
    plain = joined(write("plain.json", lambda result: result.update(frontier=None)))
    assert plain.frontier == joined(*kept(25, "stock-25")).frontier


def test_figures_of_a_frontier_that_its_file_has_of_the_largest_load_alone(write: Write) -> None:
    def smaller(result: Result) -> None:
        points = result["frontier"]["modes"]["stock"]["points"]
        points.insert(0, {**points[0], "agents": 10})

    first, last = joined(write("two.json", smaller)).frontier["modes"]["stock"]["points"]
    assert (first["agents"], first["recomputed"], first["turns_after_tool"]) == (10, None, None)
    assert (last["agents"], last["recomputed"], last["turns_after_tool"]) == (25, 44784, 322)


def test_the_same_load_again_is_a_repetition(write: Write) -> None:
    runs = [(60.0, 180.0), (70.0, 150.0), (64.0, 230.0)]
    paths = [write(f"{at}.json", measured(*run)) for at, run in enumerate(runs)]
    found = joined(*paths)
    (point,) = found.frontier["modes"]["stock"]["points"]
    assert (point["tasks_per_minute"], point["ttft_after_tool_p95_ms"]) == (64.0, 180.0)
    assert point["spread"]["ttft_after_tool_p95_ms"] == {"min": 150.0, "max": 230.0, "values": [180.0, 150.0, 230.0]}
    lines = joined_lines(found)
    assert lines[2].split()[-1] == "3"
    assert "stock with 25 agents, spread of 3: tasks/min 60.0 to 70.0, p50 57.3 to 57.3, p95 150.0 to 230.0" in lines
    assert "LineCollection" in frontier_picture(found.frontier, "")
    assert "LineCollection" not in frontier_picture(joined(*kept(25, "stock-25", "tier-36")).frontier, "")


def test_sums_of_repetitions_in_one_file_count_for_one(write: Write) -> None:
    def repeated(result: Result) -> None:
        measured(60.0, 180.0)(result)
        result["modes"]["stock"].update(repetitions=2)
        result["modes"]["stock"]["spread"] = {"tasks_per_minute": {"min": 50.0, "max": 70.0, "values": [50.0, 70.0]}}

    (point,) = joined(write("two.json", repeated)).frontier["modes"]["stock"]["points"]
    assert (point["tasks"], point["turns_after_tool"]) == (35 / 2, 322 / 2)
    assert point["spread"]["tasks_per_minute"]["values"] == [50.0, 70.0]


def test_a_fixed_limit_is_a_point_of_stock(write: Write) -> None:
    def capped(result: Result) -> None:
        measured(66.0, 190.0, agents=40, cap=25)(result)
        result["modes"]["stock+cap"] = result["modes"].pop("stock")

    found = joined(write("cap.json", capped), *kept(25, "stock-25", "stock-30"))
    assert list(found.frontier["modes"]) == ["stock"]
    assert [point["agents"] for point in found.frontier["modes"]["stock"]["points"]] == [25, 30]
    assert found.frontier["modes"]["stock"]["points"][0]["spread"]["tasks_per_minute"]["max"] == 67.7359
    assert any(line.startswith("stock+cap has no line of its own") for line in joined_lines(found))
    assert "stock = stock+cap" in frontier_picture(found.frontier, found.title)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda r: r["workload"].update(prompt_tokens=5000), "workload.prompt_tokens is 5000"),
        (lambda r: r["workload"]["load"].update(duration=60.0), "workload.load.duration is 60.0"),
        (lambda r: r["workload"]["load"].update(settle=1.0), "workload.load.settle"),
        (lambda r: r["engine"].update(pool_blocks=21862), "engine.pool_blocks is 21862 in the one and 10931"),
        (lambda r: r["engine"].update(model="folder/another"), "engine.model is 'another'"),
        (lambda r: r["engine"].update(version="0.27.0"), "engine.version"),
        (lambda r: r["engine"]["options"].update(max_num_seqs=64), "engine.options.max_num_seqs"),
        (lambda r: r["machine"].update(accelerator="another"), "machine.accelerator is 'another'"),
        (lambda r: r["modes"]["stock"]["config"].update(reuse=False), "modes.stock.config.reuse is False"),
        (lambda r: r["modes"]["stock"]["in_force"].update(leases="on"), "modes.stock.in_force.leases is 'on'"),
    ],
)
def test_results_that_differ_are_not_put_side_by_side(write: Write, change: Any, field: str) -> None:
    other, first = write("other.json", change), kept(25, "stock-30")[0]
    with pytest.raises(SetupError, match=re.escape(field)) as caught:
        joined(first, other)
    assert str(other) in str(caught.value)
    assert str(first) in str(caught.value)
    allowed = field.partition(" ")[0]
    found = joined(first, other, allow=[allowed])
    assert joined_lines(found)[1] == f"in spite of different {allowed}"


def test_a_field_that_a_file_made_up_does_not_command_the_terminal(write: Write) -> None:
    name = "workload.\x1b[2J"
    paths = [write(f"{value}.json", lambda r, value=value: r["workload"].update({"\x1b[2J": value})) for value in "ab"]
    with pytest.raises(SetupError, match=re.escape("--allow workload.?[2J")) as caught:
        joined(*paths)
    assert str(caught.value).isprintable()
    assert "\n".join(joined_lines(joined(*paths, allow=[name]))).replace("\n", "").isprintable()


def test_turns_of_agents_that_differ_count_by_how_many_there_are_on_average(write: Write) -> None:
    def mixed(result: Result) -> None:
        result["workload"].pop("tool_calls")
        result["workload"].update(resumes_per_agent=4.0)

    assert "155.8" in joined_lines(joined(write("mixed.json", mixed)))[2].split()
    untold = joined(write("untold.json", lambda result: result["workload"].pop("tool_calls")))
    assert joined_lines(untold)[2].split()[3] == "-"


def test_what_says_nothing_about_speed_may_differ(write: Write) -> None:
    def change(result: Result) -> None:
        result["versions"].update(agentkv="9", date="2027-01-01", python="3.14.0")
        result["engine"].update(model="elsewhere/agentkv-bench-8b", spec="vllm:elsewhere", engine_id="other")
        result["workload"].update(pool=0.3, resumes_per_agent=8.0)
        del result["machine"]["accelerator"]

    assert joined(*kept(25, "stock-30"), write("other.json", change)).differing == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(schema="agentkv.sweep/1"), "schema: Input should be 'agentkv.bench/1'"),
        (lambda r: r.pop("schema"), "schema: Field required"),
        (lambda r: r["workload"].update(load=None), "workload.load is null"),
        (lambda r: r["modes"]["stock"].update(window_s=None), "window_s is null"),
        (
            lambda r: r["workload"]["load"].update(settle=44),
            "workload.load.settle is 44 s of a workload.load.duration of 44 s, which leaves no window; measure with a",
        ),
        (lambda r: r["modes"]["stock"].pop("tasks_per_minute"), "modes.stock.tasks_per_minute: Field required"),
        (lambda r: r["modes"]["stock"]["ttft_after_tool_ms"].update(p95="1"), "modes.stock.ttft_after_tool_ms.p95"),
        (lambda r: r["modes"]["stock"].update(tasks_per_minute=float("nan")), "modes.stock.tasks_per_minute: Input"),
        (lambda r: r["modes"]["stock"]["config"].update(cap=0), "modes.stock.config.cap"),
        (lambda r: r["frontier"]["modes"]["stock"].update(points=[]), "frontier.modes.stock.points"),
        (
            lambda r: r["frontier"]["modes"]["stock"]["points"][0].pop("ttft_after_tool_p95_ms"),
            "frontier.modes.stock.points.0.ttft_after_tool_p95_ms: Field required",
        ),
        (lambda r: r["modes"].update({"stock@<b>": r["modes"]["stock"]}), "modes has no 'stock@<b>'"),
        (lambda r: r["modes"].clear(), "modes: Dictionary should have at least 1 item"),
        (lambda r: r["frontier"]["modes"].clear(), "frontier.modes: Dictionary should have at least 1 item"),
        (lambda r: r["frontier"].update(bound_ms=0), "frontier.bound_ms: Input should be greater than 0"),
        (lambda r: r["modes"].update({"\x1b[2J": 1}), "modes.?[2J: Input should be"),
    ],
)
def test_a_file_that_is_no_such_result_is_named_with_its_field(write: Write, change: Any, message: str) -> None:
    path = write("wrong.json", change)
    with pytest.raises(SetupError, match=re.escape(message)) as caught:
        read_steady(path)
    assert str(path) in str(caught.value)


def test_a_result_that_is_not_complete_is_drawn_where_it_is_permitted_and_then_marked(write: Write) -> None:
    path = write("part\x1b.json", lambda result: result.update(complete=False))
    with pytest.raises(SetupError, match=r"part.*\.json' is not complete.* measure it anew, or say --allow complete"):
        joined(*kept(25, "tier-36"), path)
    found = joined(*kept(25, "tier-36"), path, allow=["complete"])
    assert f"not complete: {path}".replace("\x1b", "?") in joined_lines(found)
    assert found.title.startswith("seed, incomplete, pool of")
    assert "incomplete" not in joined(write("whole.json", lambda result: result.update(complete=True))).title


def test_the_bound_is_that_of_the_results_unless_given(write: Write) -> None:
    other = write("other.json", lambda result: result["frontier"].update(bound_ms=300.0))
    assert joined(other).frontier["bound_ms"] == 300.0
    assert joined(write("none.json", measured(60.0, 180.0))).frontier["bound_ms"] == 200.0
    with pytest.raises(SetupError, match=r"frontier\.bound_ms differs: 200 ms in .*300 ms in .*say --bound-ms"):
        joined(*kept(25, "stock-30"), other)
    both = joined(*kept(25, "stock-30"), other, bound_ms=150.0)
    assert both.frontier["modes"]["stock"]["best"] is None
    assert "  stock = stock+cap: no point is within the bound" in joined_lines(both)


def test_a_window_without_resumes_and_one_that_left_some_waiting_are_told(write: Write) -> None:
    def late(result: Result) -> None:
        measured(60.0, 180.0)(result)
        result["modes"]["stock"]["censored"]["after_tool"] = 3

    lines = joined_lines(joined(write("late.json", late)))
    assert "stock with 25 agents: 3 turns had no first token when the load was taken away" in lines

    def empty(result: Result) -> None:
        measured(0.0, 1.0)(result)
        result["modes"]["stock"]["ttft_after_tool_ms"] = {"p50": None, "p95": None, "p99": None, "n": 0}

    found = joined(write("empty.json", empty))
    assert joined_lines(found)[2].split()[2:6] == ["0.0", "0.0", "-", "-"]
    ET.fromstring(frontier_picture(found.frontier, found.title))


def test_the_picture_is_a_file_that_needs_nothing_else(write: Write) -> None:
    evil = '<script>alert("1")</script> & $x_1$ \x1b[31m'
    path = write("evil.json", lambda result: result["machine"].update(accelerator=evil))
    found = joined(path, *kept(25, "tier-36", "tier-45"), allow=["machine.accelerator"])
    picture = frontier_picture(found.frontier, found.title)
    assert picture == frontier_picture(found.frontier, found.title)
    assert len(picture.encode()) < 40_000
    elements = list(ET.fromstring(picture).iter())
    assert not any(element.tag.endswith(("script", "image", "foreignObject")) for element in elements)
    links = [value for element in elements for key, value in element.attrib.items() if key.endswith("href")]
    assert all(link.startswith("#") for link in links)
    text = [element.text for element in elements if element.tag.endswith("}text")]
    assert {"25", "36", "45", "stock = stock+cap", "bidirectional+tier", "bound, 200 ms"} <= set(text)
    assert any(evil.replace("\x1b", "?") in (each or "") for each in text)


def test_the_pictures_of_the_documentation_are_of_results_that_are_kept() -> None:
    commands = re.findall(r"agentkv bench frontier (\S+) --svg (\S+)", (ROOT / "benchmarks" / "gpu.md").read_text())
    assert len(commands) >= 2
    for results, picture in commands:
        text = " ".join(each.text or "" for each in ET.parse(ROOT / picture).iter())
        agents = {point.agents for path in ROOT.glob(results) for point in read_steady(path).points}
        assert agents <= {int(number) for number in re.findall(r"\b\d+\b", text)}


def test_the_example_of_the_page_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    block = page.partition("### One picture of several results")[2].split("```")[1]
    commands = [line.removeprefix("$ agentkv ") for line in block.splitlines() if line.startswith("$ ")]
    monkeypatch.chdir(tmp_path)
    for command in commands:
        capsys.readouterr()
        assert main(shlex.split(command)) == 0
    assert block.partition(commands[-1] + "\n")[2] == capsys.readouterr().out
    assert ET.parse(tmp_path / "frontier.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("none.json",), "'none.json' cannot be read: No such file"),
        ((str(kept(25, "stock-25")[0]),) * 2, "is given twice"),
        (
            (str(kept(25, "stock-25")[0]), "--allow", "engine.pool"),
            "--allow engine.pool: the results have no such field",
        ),
        ((str(kept(25, "stock-25")[0]), "--bound-ms", "nan"), "--bound-ms nan must be above 0"),
        ((str(kept(25, "stock-25")[0]), "--svg", "nowhere/f.svg"), "--svg nowhere/f.svg: there is no folder"),
    ],
)
def test_mistakes_are_told_in_one_line(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "frontier", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err
