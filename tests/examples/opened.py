"""Prints the path of each file that the demo's tools open; run from the repository's root."""

import os
import sys
from pathlib import Path

import anyio

import agentkv as akv

sys.path.insert(0, "examples")
import plan_act_replan as example

opened: set[str] = set()


def note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str | bytes):
        opened.add(str(Path(os.fsdecode(arguments[0])).resolve()))


async def call_all() -> None:
    for topic in ("disk", "network"):
        example.read_runbook(topic)
    await example.measure_writes(akv.Context(None), 64)
    example.free_space()


async def main() -> None:
    await call_all()  # imports on first use open files, too
    sys.addaudithook(note)
    await call_all()


example.SECONDS = 0
anyio.run(main)
print(*sorted(opened), sep="\n")
