"""Operations on leases and runs that a client calls on the engine: one utility method, JSON in and out.

``await engine.engine_core.call_utility_async("agentkv", operation, payload)`` where ``payload`` is a JSON object
as a string; the answer is one too, ``{"error": why}`` if the operation could not be done at all. Where a list is
taken, the answer lists one reason (null: done) per element. Seconds are relative to the call.

==============  ================================================================  =====================================
operation       payload                                                           answer
==============  ================================================================  =====================================
``info``        {}                                                                engine_id, epoch, version,
                                                                                  block_size, pool_blocks,
                                                                                  kv_bytes_per_token, capabilities,
                                                                                  settings
``renew``       {"leases": [{"token", "ttl", "expected_reuse"?, "class"?}]}       {"reasons": [...]}
``release``     {"tokens": [token]}                                               {"reasons": [...]}
``verify``      {"token", "handle": {...}}                                        {"reason"}
``admit``       {"run", "blocks", "ttl", "owner"?, "anchor"?, "anchor_blocks"?,   {"ticket", "state", "position",
                "parent"?}                                                        "estimate"} or {"refused": why}
``update``      {"ticket", "blocks"}                                              {"reason"}
``heartbeat``   {"tickets": [ticket], "ttl"}                                      {"runs": [{"state", "position",
                                                                                  "estimate"} or null]}
``leave``       {"tickets": [ticket]}                                             {"reasons": [...]}
``events``      {"after": cursor, "limit"?}                                       {"events": [...], "cursor", "lost"}
``stats``       {}                                                                counters
``reset``       {}                                                                {"leases_dropped", "epoch", "done"}
==============  ================================================================  =====================================
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import vllm
from attrs import asdict, frozen

from agentkv.kv import KVHandle
from agentkv.kv.directive import MAX_TTL
from agentkv.kv.order import RANKS
from agentkv.plugin.manager import KVManager

__all__ = ("METHOD", "call", "install")

METHOD = "agentkv"
MAX_PAYLOAD = 1 << 20


class BadCall(Exception):  # noqa: N818 - never leaves this module
    """Raised while a payload is read; its message becomes the answer's ``error``."""


@frozen
class Payload:
    """A JSON object of a caller's, read field by field; ``BadCall`` names the field that is not as it must be."""

    fields: Mapping[str, Any]

    def text(self, name: str, default: str | None = None) -> str:
        value = self.fields.get(name, default)
        if not isinstance(value, str) or len(value) > 256:
            raise BadCall(f"{name}: must be a string of at most 256 characters")
        return value

    def count(self, name: str, default: int | None = None) -> int:
        value = self.fields.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 53:
            raise BadCall(f"{name}: must be a whole number from 0")
        return value

    def seconds(self, name: str) -> float:
        value = self.fields.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            raise BadCall(f"{name}: must be a number of seconds")
        if not 0 <= value <= MAX_TTL:
            raise BadCall(f"{name}: must be from 0 to {MAX_TTL:g} seconds")
        return float(value)

    def many(self, name: str, of: type) -> list[Any]:
        value = self.fields.get(name)
        if not isinstance(value, list) or not all(isinstance(each, of) for each in value):
            raise BadCall(f"{name}: must be a list")
        return value


def install() -> None:
    """Give vLLM's engine core the utility method; doing it twice changes nothing."""
    from vllm.v1.engine.core import EngineCore

    def agentkv(self: Any, operation: str, payload: str) -> str:
        return call(self.scheduler, operation, payload)

    setattr(EngineCore, METHOD, agentkv)


def call(scheduler: Any, operation: object, payload: object) -> str:
    """Do one operation on a scheduler's KV; returns the answer as JSON. Raises nothing."""
    try:
        answer = _answer(scheduler, operation, payload)
    except BadCall as bad:
        answer = {"error": str(bad)}
    except Exception as error:  # noqa: BLE001 - a client's call must not disturb the engine
        answer = {"error": f"{type(error).__name__}: {error}"}
    return json.dumps(answer)


def _answer(scheduler: Any, operation: object, payload: object) -> dict[str, Any]:
    if not isinstance(payload, str) or len(payload) > MAX_PAYLOAD:
        raise BadCall("payload: must be a JSON string of at most 1 MiB")
    fields = json.loads(payload)
    if not isinstance(fields, dict):
        raise BadCall("payload: must be a JSON object")
    kv: KVManager | None = getattr(scheduler, "kv", None)
    if operation == "info":
        return _info(scheduler, kv)
    if kv is None:
        raise BadCall(f"leases: off: {getattr(scheduler, 'kv_off', 'another scheduler runs')}")
    if operation == "reset":
        return _reset(scheduler, kv)
    handler = _OPERATIONS.get(operation) if isinstance(operation, str) else None
    if handler is None:
        raise BadCall(f"operation: must be one of info, reset, {', '.join(_OPERATIONS)}")
    # Time stands still in an idle engine except for its callers.
    kv.settle(at_once=True)
    answer = handler(kv, Payload(fields))
    scheduler.release_admitted()
    return answer


def _info(scheduler: Any, kv: KVManager | None) -> dict[str, Any]:
    if kv is None:
        off = f"off: {getattr(scheduler, 'kv_off', '')}"
        return {"version": vllm.__version__, "capabilities": dict.fromkeys(("leases", "order", "admission"), off)}
    policy, pool = kv.policy, scheduler.kv_cache_manager.block_pool
    settings = policy.settings
    return {
        "version": vllm.__version__,
        "engine_id": policy.leases.engine_id,
        "epoch": policy.leases.epoch,
        "block_size": policy.leases.block_size,
        "pool_blocks": pool.num_gpu_blocks - 1,
        "kv_bytes_per_token": policy.records.bytes_per_block // policy.leases.block_size,
        "settings": asdict(settings),
        "capabilities": {
            "leases": "on" if settings.prefix_cache_mode == "hybrid" else "off: prefix_cache_mode is independent",
            "order": "on" if kv.fcfs else "off: the engine's scheduling policy is not fcfs",
            "admission": "on" if settings.admission == "auto" else "off: admission is none",
        },
    }


def _renew(kv: KVManager, payload: Payload) -> dict[str, Any]:
    reasons: list[str | None] = []
    for each in map(Payload, payload.many("leases", dict)):
        lease_class = each.fields.get("class")
        if lease_class is not None and lease_class not in RANKS:
            raise BadCall(f"class: must be one of {', '.join(RANKS)}")
        reuse = each.seconds("expected_reuse") if each.fields.get("expected_reuse") is not None else None
        reasons.append(
            kv.policy.leases.renew(
                each.text("token"),
                ttl=each.seconds("ttl"),
                now=kv.now(),
                expected_reuse=reuse,
                lease_class=lease_class,
            )
        )
    return {"reasons": reasons}


def _release(kv: KVManager, payload: Payload) -> dict[str, Any]:
    return {"reasons": [kv.policy.leases.release(token, kv.now()) for token in payload.many("tokens", str)]}


def _verify(kv: KVManager, payload: Payload) -> dict[str, Any]:
    given = payload.fields.get("handle")
    if not isinstance(given, dict) or set(given) != {"engine_id", "epoch", "owner", "digest", "length"}:
        raise BadCall("handle: must be an object with engine_id, epoch, owner, digest and length")
    return {"reason": kv.policy.leases.verify(payload.text("token"), KVHandle(**given), kv.now())}


def _admit(kv: KVManager, payload: Payload) -> dict[str, Any]:
    ticket = kv.policy.admit(
        run=payload.text("run"),
        blocks=payload.count("blocks"),
        ttl=payload.seconds("ttl"),
        now=kv.now(),
        owner=payload.text("owner", ""),
        anchor=payload.text("anchor", ""),
        anchor_blocks=payload.count("anchor_blocks", 0),
        parent=payload.text("parent") if payload.fields.get("parent") is not None else None,
    )
    return {"refused": ticket} if isinstance(ticket, str) else {"ticket": ticket.token, **_place(kv, ticket.token)}


def _place(kv: KVManager, token: str) -> dict[str, Any]:
    line, ticket = kv.policy.admission, kv.policy.admission.get(token)
    state = ticket.state if ticket is not None else "gone"
    return {"state": state, "position": line.position(token), "estimate": line.estimate(token)}


def _update(kv: KVManager, payload: Payload) -> dict[str, Any]:
    return {"reason": kv.policy.update(payload.text("ticket"), payload.count("blocks"), kv.now())}


def _heartbeat(kv: KVManager, payload: Payload) -> dict[str, Any]:
    ttl, tickets = payload.seconds("ttl"), payload.many("tickets", str)
    return {"runs": [_place(kv, each) if kv.policy.renew(each, ttl, kv.now()) is None else None for each in tickets]}


def _leave(kv: KVManager, payload: Payload) -> dict[str, Any]:
    return {"reasons": [kv.policy.leave(token, kv.now()) for token in payload.many("tickets", str)]}


def _events(kv: KVManager, payload: Payload) -> dict[str, Any]:
    found, cursor, lost = kv.policy.records.events(payload.count("after", 0), min(payload.count("limit", 1000), 4096))
    return {"events": [record.as_wire() for record in found], "cursor": cursor, "lost": lost}


def _stats(kv: KVManager, _: Payload) -> dict[str, Any]:
    return kv.stats()


def _reset(scheduler: Any, kv: KVManager) -> dict[str, Any]:
    leases = len(kv.policy.leases.table)
    done = scheduler.reset_prefix_cache()
    return {"leases_dropped": leases, "epoch": kv.policy.leases.epoch, "done": bool(done)}


_OPERATIONS: dict[str, Callable[[KVManager, Payload], dict[str, Any]]] = {
    "renew": _renew,
    "release": _release,
    "verify": _verify,
    "admit": _admit,
    "update": _update,
    "heartbeat": _heartbeat,
    "leave": _leave,
    "events": _events,
    "stats": _stats,
}
