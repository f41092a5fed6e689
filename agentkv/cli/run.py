"""``agentkv run``: one run, its answer and its report."""

import argparse
import json
import sys
from typing import Any

from attrs import frozen

from agentkv.cli.engine_options import parse_engine_options
from agentkv.cli.failure import tell
from agentkv.cli.load import Target, load
from agentkv.cli.terminate import run_until_told
from agentkv.cli.watch import watch
from agentkv.config import MANAGED, KVConfig
from agentkv.engines import Engine, open_engine
from agentkv.errors import AgentKVError, SetupError
from agentkv.report import RunReport
from agentkv.runtime import Result, Runtime
from agentkv.testing.simulate import responder
from agentkv.tools import dump

__all__ = ("command",)


def command(options: argparse.Namespace) -> int:
    """Run ``options.target`` and print what came of it."""
    target = load(options.target)
    prompt = options.prompt if options.prompt is not None else target.get("prompt")
    if not isinstance(prompt, str):
        raise SetupError(f"give a prompt: agentkv run {options.target} PROMPT (the file has no prompt of its own)")
    ended = run_until_told(lambda: _run(target, prompt, options))
    if isinstance(ended, _Failed):
        tell(ended.error)
    if options.json:
        print(json.dumps(_json(ended), indent=2))
    else:
        _show(ended)
    return 0 if isinstance(ended, Result) else 1


@frozen
class _Failed:
    """What ended a run instead of an answer, and the report of what it did until then."""

    error: AgentKVError
    kv: RunReport


async def _run(target: Target, prompt: str, options: argparse.Namespace) -> Result[Any] | _Failed:
    kv = KVConfig(kv_transfer_mode=options.kv_transfer_mode)
    engine, start_options = _engine(target, options.engine, parse_engine_options(options.engine_option))
    limits = target.get("limits")
    async with (
        Runtime(
            engine, store=options.store, kv=kv, limits=limits, options=start_options, progress=_progress
        ) as runtime,
        runtime.start(target.value, prompt, deps=target.get("deps")) as run,
    ):
        if not options.quiet:
            chat = runtime.format
            await watch(run, hidden=[chat.tokenizer.decode([id_]) for id_ in chat.stop_ids])
        try:
            return await run.result()
        except AgentKVError as error:
            return _Failed(error, run.report)


def _engine(target: Target, spec: str, options: dict[str, Any]) -> tuple[str | Engine, dict[str, Any]]:
    """The engine and what is left of its options; the simulated model says what the file's ``script`` has."""
    script = target.get("script")
    if script is None or spec.partition(":")[0] != "sim":
        return spec, options
    return open_engine(spec, kv=MANAGED, options=options, script=responder(script)), {}


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _json(ended: Result[Any] | _Failed) -> dict[str, Any]:
    report = ended.kv.to_json()
    schema = report.pop("schema")
    if isinstance(ended, Result):
        return {"schema": schema, "output": _plain(ended.output), "complete": ended.complete, "error": None, **report}
    error = {"kind": type(ended.error).__name__, "message": str(ended.error)}
    return {"schema": schema, "output": None, "complete": False, "error": error, **report}


def _show(ended: Result[Any] | _Failed) -> None:
    if isinstance(ended, Result):
        print(ended.output)
        if not ended.complete:
            _progress("agentkv: the answer was cut off; give it a larger max_tokens, Limits.tokens or context")
        print()
    elif not ended.kv.steps:
        # Nothing was asked, so there is nothing to account for.
        return
    print(ended.kv.text())


def _plain(output: Any) -> Any:
    return output if isinstance(output, str) else json.loads(dump(output))
