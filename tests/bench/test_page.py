"""The page: complete, self-contained, and safe whatever stands in a name."""

import importlib.util
import json
from html.parser import HTMLParser
from typing import Any

import pytest

from agentkv.bench import page
from agentkv.bench.page.style import new_figure, svg_of
from agentkv.errors import SetupError

Bench = Any
MODES = "stock,stock+cap,bidirectional"


class Reader(HTMLParser):
    """Collects what a browser would show and fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "data", "action")]
        if tag not in ("meta", "br", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def result(bench: Bench) -> dict[str, Any]:
    return bench(MODES, pool=0.5, floor_samples=2, without=("admission",))


@pytest.fixture(scope="module")
def steady(bench: Bench) -> dict[str, Any]:
    load = {"engine": "sim:h200", "chains": 4, "start_spread": 2.0, "duration": 20.0, "pool": 1.0}
    return bench("stock,bidirectional", frontier=(2, 4), ratios=(0.5, 0.9), **load)


def test_it_shows_every_figure_and_fetches_nothing(result: dict[str, Any]) -> None:
    text = page(result)
    found = read(text)
    assert found.tags.count("svg") == 3
    assert "script" not in found.tags
    assert all(link.startswith("#") for link in found.links)
    assert "default-src 'none'" in text
    for part in ("TTFT after a tool", "Who holds the pool", "What was evicted", "Tasks over time", "All figures"):
        assert part in found.text
    for name in MODES.split(","):
        assert name in found.text
    assert "leases that gave way" in found.text
    assert len(text) < 2_000_000


def test_inner_names_of_equal_figures_are_apart() -> None:
    drawn = []
    for name in ("one", "other"):
        figure = new_figure(2.0)
        figure.axes[0].plot([1, 2], [3, 4])
        drawn.append({part.split('"')[0] for part in svg_of(figure, name).split('<clipPath id="')[1:]})
    assert all(drawn)
    assert not drawn[0] & drawn[1]


def test_a_frontier_and_several_ratios_are_drawn(steady: dict[str, Any]) -> None:
    found = read(page(steady))
    assert found.tags.count("svg") == 5
    assert "Frontier" in found.text
    assert "Share of the pool for leases" in found.text
    assert "bidirectional@0.5" in found.text
    assert "Steady load of 4 agents" in found.text


def test_equal_results_give_equal_pages(result: dict[str, Any]) -> None:
    assert page(result) == page(json.loads(json.dumps(result)))


@pytest.mark.parametrize("evil", ["<script>alert(1)</script>", '"><img src=x>', "a & b ]]>", "$x_1$ <b>"])
def test_text_is_escaped_wherever_it_comes_from(result: dict[str, Any], evil: str) -> None:
    modes = {**result["modes"], evil: result["modes"]["stock"]}
    engine = {**result["engine"], "model": evil, "spec": evil}
    text = page({**result, "modes": modes, "engine": engine, "versions": {**result["versions"], "date": evil}})
    found = read(text)
    assert "script" not in found.tags
    assert "img" not in found.tags
    assert found.tags.count("b") == 0
    assert found.text.count(evil) > 5


def test_a_result_with_nothing_in_it_is_a_page_too(bench: Bench) -> None:
    found = read(page(bench("stock", tool_calls=0, chains=1)))
    assert "Where the time of a resume goes" in found.text


def test_without_the_library_it_says_how_to_get_it(result: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SetupError, match=r"pip install 'agentkv\[bench\]'"):
        page(result)
