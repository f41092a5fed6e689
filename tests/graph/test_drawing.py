"""Mermaid drawings: every node and way on, nothing in a name that breaks the drawing."""

import re
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from agentkv.graph import END, START, Agent, Graph, compile, mermaid

WRITER = Agent("writer", instructions="")


def test_a_graph_prints_as_a_flowchart() -> None:
    graph = Graph("g")
    plan = graph.plan("plan", WRITER)
    replan = graph.replan("replan", WRITER, labels=Literal["again", "answer"])
    graph.path(START, plan, replan)
    graph.route(replan, {"again": plan, "answer": END})
    assert str(graph) == (
        "flowchart TD\n"
        '    start(("START"))\n'
        '    n0["plan"]\n'
        '    n1{{"replan"}}\n'
        '    finish(("END"))\n'
        "    start --> n0\n"
        '    n0 -->|"answer"| n1\n'
        '    n1 -->|"again"| n0\n'
        '    n1 -->|"answer"| finish'
    )
    assert str(compile(graph)) == str(graph)


def test_an_unfinished_graph_prints_too() -> None:
    graph = Graph("g")
    graph.path(graph.tool("act"), graph.observe("look"))
    assert '[["act"]]' in str(graph)
    assert "n0 --> n1" in str(graph)


def test_an_overlay_adds_a_line_to_its_node() -> None:
    graph = Graph("g")
    graph.path(START, graph.plan("plan", WRITER))
    assert '["plan<br/>3 visits #60; 1 s"]' in mermaid(compile(graph), {"plan": "3 visits < 1 s"})


@given(st.text(min_size=1).filter(lambda name: bool(name.strip()) and name not in ("START", "END")))
def test_no_name_breaks_out_of_its_quotes(name: str) -> None:
    graph = Graph("g")
    graph.path(START, graph.plan(name, WRITER))
    lines = str(graph).split("\n")
    assert len(lines) == 6
    assert re.fullmatch(r'    n0\["[^"<>`]+"\]', lines[2])
