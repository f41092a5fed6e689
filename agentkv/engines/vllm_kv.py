"""The wire between an in-process vLLM and what was put into its scheduler."""

import json
from collections.abc import Mapping
from typing import Any

import anyio
from attrs import asdict

from agentkv.engines.base import GenerateRequest, PrefillRequest
from agentkv.errors import EngineError, EngineUnavailable, NotSupported
from agentkv.kv import Grant, KVHandle, PolicySettings

__all__ = ("call", "extra_args", "grant_of", "managed_capabilities", "managed_options")

CONNECTOR_MODULE = "agentkv.plugin.connector"
# Schedulers by what is in them: the KV policy, and that ids can be forced.
SCHEDULERS = {
    (True, False): "agentkv.plugin.scheduler.AgentScheduler",
    (True, True): "agentkv.plugin.forcing.ForcingAgentScheduler",
    (False, True): "agentkv.plugin.forcing.ForcingScheduler",
}
# The plugin's own names for these; it is importable only where vLLM is.
KEY = "agentkv"
FORCED = "agentkv_forced"
# A step of the engine comes between a call and its answer; the longest on a CPU take seconds.
ANSWER_SECONDS = 30.0


def managed_options(options: Mapping[str, Any], settings: PolicySettings | None, *, forcing: bool) -> dict[str, Any]:
    """The user's ``options`` and those that put the KV policy into vLLM's scheduler, and the means to force ids.

    A second tier puts copies into its workers, too, unless ``options`` name a connector. Raises ``NotSupported`` for
    options that would put another scheduler in the place of ours, or other settings in that of ``settings``.
    """
    ours = _scheduler_arguments(settings, forcing=forcing)
    given = {name: value for name, value in options.items() if value is not None or name not in ours}
    scheduler, additional = given.get("scheduler_cls"), given.get("additional_config")
    if ours and scheduler not in (None, ours["scheduler_cls"]):
        raise NotSupported(
            f"option scheduler_cls={scheduler!r}: an engine has one scheduler, and agentkv's own manages KV and forces "
            "ids; leave the option out, or start the engine without both (engine_kv=None, forcing=False)"
        )
    if settings is not None and additional is not None:
        if not isinstance(additional, Mapping) or KEY in additional:
            raise NotSupported(
                f"option additional_config={additional!r}: must be an object without {KEY!r}; how KV is managed is set "
                "by engine_kv"
            )
        given["additional_config"] = {**additional, **ours["additional_config"]}
    return {**ours, **given}


def _scheduler_arguments(settings: PolicySettings | None, *, forcing: bool) -> dict[str, Any]:
    scheduler = SCHEDULERS.get((settings is not None, forcing))
    chosen: dict[str, Any] = {} if scheduler is None else {"scheduler_cls": scheduler}
    if settings is None:
        return chosen
    if settings.capabilities()["tier"] == "on":
        chosen["kv_transfer_config"] = {
            "kv_connector": "TierConnector",
            "kv_connector_module_path": CONNECTOR_MODULE,
            "kv_role": "kv_both",
        }
    return {**chosen, "additional_config": {KEY: asdict(settings)}}


def extra_args(request: GenerateRequest | PrefillRequest) -> dict[str, Any] | None:
    """What ``SamplingParams.extra_args`` takes for the request's directive and its forced ids."""
    found: dict[str, Any] = {} if request.directive is None else {KEY: request.directive.to_wire()}
    if isinstance(request, GenerateRequest) and request.forced is not None:
        found[FORCED] = [*request.forced]
    return found or None


def grant_of(output: Any) -> Grant | None:
    """The lease that a finished request was given; None for a request without a directive."""
    report = (output.kv_transfer_params or {}).get(KEY)
    if report is None:
        return None
    handle = report.get("handle")
    return Grant(
        token=report.get("lease"),
        handle=None if handle is None else KVHandle(**handle),
        blocks=report.get("blocks", 0),
        offered=report.get("offered", 0),
        reason=report.get("rejected") or report.get("reason"),
    )


async def call(llm: Any, operation: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Do one operation on leases and runs in the engine process.

    Raises ``EngineError`` when no answer comes, ``EngineUnavailable`` when the process has died.
    """
    from vllm.v1.engine.exceptions import EngineDeadError

    try:
        # vLLM never answers a call that was under way when its engine died.
        with anyio.fail_after(ANSWER_SECONDS):
            answer = await llm.engine_core.call_utility_async(KEY, operation, json.dumps(payload))
    except TimeoutError as error:
        raise EngineError(f"KV operation {operation!r}: no answer in {ANSWER_SECONDS:g} s") from error
    except EngineDeadError as error:
        raise EngineUnavailable(f"KV operation {operation!r}: vLLM's engine process has died") from error
    except Exception as error:
        raise EngineError(f"KV operation {operation!r}: {type(error).__name__}: {error}") from error
    found: dict[str, Any] = json.loads(answer)
    return found


async def managed_capabilities(llm: Any, settings: PolicySettings | None) -> dict[str, str]:
    """What of KV management is in force in the running engine, and why not where it is not."""
    names = ("leases", "order", "admission", "tier")
    if settings is None:
        return dict.fromkeys(names, "off: the engine was started without KV management (engine_kv=None)")
    answer = await call(llm, "info", {})
    capabilities = answer.get("capabilities") or dict.fromkeys(names, f"off: {answer.get('error', 'no answer')}")
    return {name: str(state) for name, state in capabilities.items()}
