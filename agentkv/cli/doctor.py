"""``agentkv doctor``: what an engine has in force, what it has not and why, and what the chat template allows."""

import argparse
import json
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attrs import asdict

from agentkv.chain import ChatFormat
from agentkv.cli.engine_options import parse_engine_options
from agentkv.cli.terminate import run_until_told
from agentkv.engines import Engine, EngineInfo
from agentkv.runtime import Runtime

__all__ = ("command",)

SCHEMA = "agentkv.doctor/1"

_REMEDIES = {
    "prefix_caching": "start with the engine option enable_prefix_caching=True",
    "leases": "akv.Runtime(..., engine_kv=akv.EngineKV()), the default, on vLLM 0.26 to 0.32",
    "order": "as for leases",
    "admission": "akv.Runtime(..., engine_kv=akv.EngineKV(admission='auto')), the default",
    "tier": "akv.Runtime(..., engine_kv=akv.EngineKV(cpu_tier_bytes=BYTES)), host memory for KV of chains that wait",
}


def command(options: argparse.Namespace) -> int:
    """Start ``options.engine``, look, and stop it."""
    start_options = parse_engine_options(options.engine_option)
    findings = run_until_told(lambda: _examine(options.engine, start_options))
    if options.json:
        print(json.dumps(findings, indent=2))
    else:
        print("\n".join(_lines(findings)))
    return 0


async def _examine(spec: str | Engine, options: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    async with Runtime(
        spec, options=options, progress=lambda line: print(line, file=sys.stderr, flush=True)
    ) as runtime:
        return _findings(runtime.engine.info, runtime.format)


def _findings(info: EngineInfo, chat: ChatFormat) -> dict[str, Any]:
    capabilities = [
        {"capability": name, "in_force": state, "how": "" if state.startswith("on") else _REMEDIES.get(name, "")}
        for name, state in info.capabilities.items()
    ]
    verdict = chat.verdict
    return {
        "schema": SCHEMA,
        "engine": {**asdict(info), "capabilities": dict(info.capabilities)},
        "capabilities": capabilities,
        "template": {
            "dialect": chat.dialect.name,
            "boundaries": {name: asdict(entry) for name, entry in verdict.boundaries.items()},
            "delta": asdict(verdict.delta),
        },
    }


def _lines(findings: dict[str, Any]) -> list[str]:
    engine = findings["engine"]
    pool = engine["pool_blocks"]
    lines = [
        f"engine   {engine['name']} {engine['version']}".rstrip(),
        f"model    {engine['model']}  ({engine['max_model_len']} tokens at most)",
        f"KV       blocks of {engine['block_size']} tokens, "
        + (f"{pool} in the pool, {pool * engine['block_size']} tokens" if pool is not None else "pool size not known"),
        f"         {engine['kv_bytes_per_token'] or 'an unknown number of'} bytes a token",
        "",
        "capability            in force",
    ]
    for entry in findings["capabilities"]:
        lines.append(f"{entry['capability']:<22}{entry['in_force']}")
        if entry["how"]:
            lines.append(f"{'':<22}turn it on: {entry['how']}")
    return [*lines, "", *_template_lines(findings["template"])]


def _template_lines(template: dict[str, Any]) -> list[str]:
    lines = [f"chat template, {template['dialect']} calls: is what was said before left as it was?"]
    for boundary, verdict in template["boundaries"].items():
        lines.append(
            f"  after a {boundary:<14}{'yes' if verdict['append_only'] else 'no'}  {verdict['reason']}".rstrip()
        )
        if not verdict["append_only"] and verdict["held"]:
            lines += [f"      was: {verdict['held']!r}", f"      is:  {verdict['fresh']!r}"]
    if not template["delta"]["append_only"]:
        lines.append(f"  appending differs from rendering anew: {template['delta']['reason']}")
    return lines
