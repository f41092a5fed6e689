"""Operations on leases and runs that a client calls on an engine; JSON objects in and out.

Where a list is taken, the answer lists one reason (null: done) per element. Seconds are relative to the call.

==============  ================================================================  =====================================
operation       payload                                                           answer
==============  ================================================================  =====================================
``renew``       {"leases": [{"token", "ttl", "expected_reuse"?, "class"?}]}       {"reasons": [...]}
``release``     {"tokens": [token]}                                               {"reasons": [...]}
``demote``      {"tokens": [token]}                                               {"reasons": [...]}
``promote``     {"tokens": [token]}                                               {"reasons": [...]}
``verify``      {"token", "handle": {...}}                                        {"reason"}
``admit``       {"run", "blocks", "ttl", "owner"?, "anchor"?, "anchor_blocks"?,   {"ticket", "state", "position",
                "parent"?, "held"?}                                               "estimate"} or {"refused": why}
``update``      {"ticket", "blocks"}                                              {"reason"}
``heartbeat``   {"tickets": [ticket], "ttl"}                                      {"runs": [{"state", "position",
                                                                                  "estimate"} or null]}
``leave``       {"tickets": [ticket]}                                             {"reasons": [...]}
``events``      {"after": cursor, "limit"?, "kinds"?: [kind], "run"?}             {"events": [...], "cursor", "last",
                                                                                  "lost"}
``occupancy``   {}                                                                blocks by class of the lease on them
``stats``       {}                                                                counters
==============  ================================================================  =====================================

``demote`` has leases leave the pool for host memory, once they are copied, until ``promote`` or a request on their
chain brings them back: for chains that wait for minutes. Without a second tier both say so in ``error``.

An engine adds to ``stats`` its ``pool_blocks`` and ``free_blocks`` (those that nobody refers to, cached or not),
``held_requests`` (waiting for admission) and ``live_requests`` (those with a directive). It adds to ``occupancy``
its blocks by use that no lease holds: ``running``, ``cached`` (nobody refers to them, and they can be hit), ``free``.
Of a second tier ``tier`` is an object with its blocks: ``away`` (there alone), ``also in the pool``, ``free``.

Every engine that manages KV has two more, which need the engine itself: ``info`` {} (engine_id, epoch, version,
block_size, pool_blocks, kv_bytes_per_token of one device, tier_slots, tier_bytes of all devices, capabilities,
settings) and ``reset`` {} (leases_dropped, epoch, done, reason). Leases and host memory are forgotten at once; the
pool's cache only where no request uses blocks of it, else ``done`` is false and ``reason`` says what stands against it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from agentkv.kv.payload import BadCall, Payload
from agentkv.kv.policy import KVPolicy
from agentkv.kv.tier import Tier

__all__ = ("OPERATIONS", "perform", "reset_answer")

MAX_EVENTS = 4096


def perform(policy: KVPolicy, operation: object, payload: object, now: float) -> dict[str, Any]:
    """Do one operation at ``now`` (engine seconds); ``{"error": why}`` if it could not be done. Raises nothing.

    The caller settles the policy before, and starts what the operation let in behind it.
    """
    try:
        handler = OPERATIONS.get(operation) if isinstance(operation, str) else None
        if handler is None:
            raise BadCall(f"operation: must be one of info, reset, {', '.join(OPERATIONS)}")
        if not isinstance(payload, Mapping):
            raise BadCall("payload: must be a JSON object")
        return handler(policy, Payload(payload), now)
    except BadCall as bad:
        return {"error": str(bad)}
    except Exception as error:  # noqa: BLE001 - a client's call must not disturb the engine
        return {"error": f"{type(error).__name__}: {error}"}


def reset_answer(leases: int, epoch: int, *, done: bool, in_use: int) -> dict[str, Any]:
    """The answer to ``reset``, after which requests use ``in_use`` of the pool's blocks."""
    reason = (
        f"{in_use} blocks are in use by requests, so that the cache keeps what was computed before: "
        "call reset again when they have ended"
    )
    return {"leases_dropped": leases, "epoch": epoch, "done": done, "reason": None if done else reason}


def _renew(policy: KVPolicy, payload: Payload, now: float) -> dict[str, Any]:
    # All of it is read before any of it is done: a malformed element leaves every lease as it was.
    asked = [
        (
            each.text("token"),
            each.seconds("ttl"),
            each.seconds("expected_reuse") if each.has("expected_reuse") else None,
            each.lease_class(),
        )
        for each in map(Payload, payload.many("leases", dict))
    ]
    reasons = [
        policy.leases.renew(token, ttl=ttl, now=now, expected_reuse=reuse, lease_class=lease_class)
        for token, ttl, reuse, lease_class in asked
    ]
    return {"reasons": reasons}


def _release(policy: KVPolicy, payload: Payload, now: float) -> dict[str, Any]:
    return {"reasons": [policy.leases.release(token, now) for token in payload.many("tokens", str)]}


def _demote(policy: KVPolicy, payload: Payload, now: float) -> dict[str, Any]:
    tier = _tier(policy)
    return {"reasons": [tier.demote(token, now) for token in payload.many("tokens", str)]}


def _promote(policy: KVPolicy, payload: Payload, now: float) -> dict[str, Any]:
    tier = _tier(policy)
    return {"reasons": [tier.promote(token, now) for token in payload.many("tokens", str)]}


def _tier(policy: KVPolicy) -> Tier:
    if policy.tier is None:
        raise BadCall(f"tier: {policy.settings.capabilities()['tier']}")
    return policy.tier


def _verify(policy: KVPolicy, payload: Payload, now: float) -> dict[str, Any]:
    return {"reason": policy.leases.verify(payload.text("token"), payload.handle(), now)}


def _admit(policy: KVPolicy, payload: Payload, now: float) -> dict[str, Any]:
    ticket = policy.admit(
        run=payload.text("run"),
        blocks=payload.count("blocks"),
        ttl=payload.seconds("ttl"),
        now=now,
        owner=payload.text("owner", ""),
        anchor=payload.text("anchor", ""),
        anchor_blocks=payload.count("anchor_blocks", 0),
        parent=payload.text("parent") if payload.has("parent") else None,
        held=payload.count("held") if payload.has("held") else None,
    )
    return {"refused": ticket} if isinstance(ticket, str) else {"ticket": ticket.token, **_place(policy, ticket.token)}


def _place(policy: KVPolicy, token: str) -> dict[str, Any]:
    line, ticket = policy.admission, policy.admission.get(token)
    state = ticket.state if ticket is not None else "gone"
    return {"state": state, "position": line.position(token), "estimate": line.estimate(token)}


def _update(policy: KVPolicy, payload: Payload, now: float) -> dict[str, Any]:
    return {"reason": policy.update(payload.text("ticket"), payload.count("blocks"), now)}


def _heartbeat(policy: KVPolicy, payload: Payload, now: float) -> dict[str, Any]:
    ttl, tickets = payload.seconds("ttl"), payload.many("tickets", str)
    return {"runs": [_place(policy, each) if policy.renew(each, ttl, now) is None else None for each in tickets]}


def _leave(policy: KVPolicy, payload: Payload, now: float) -> dict[str, Any]:
    return {"reasons": [policy.leave(token, now) for token in payload.many("tickets", str)]}


def _events(policy: KVPolicy, payload: Payload, _: float) -> dict[str, Any]:
    after, limit = payload.count("after", 0), min(payload.count("limit", 1000), MAX_EVENTS)
    kinds = payload.many("kinds", str) if payload.has("kinds") else ()
    run = payload.text("run") if payload.has("run") else None
    found, cursor, lost = policy.records.events(after, limit, kinds, run)
    wire = [record.as_wire() for record in found]
    return {"events": wire, "cursor": cursor, "lost": lost, "last": policy.records.last}


def _occupancy(policy: KVPolicy, _: Payload, __: float) -> dict[str, Any]:
    host = {} if policy.tier is None else {"tier": policy.tier.occupancy()}
    return {**policy.leases.table.by_class(), **host}


def _stats(policy: KVPolicy, _: Payload, __: float) -> dict[str, Any]:
    return policy.stats()


#: The operations by name.
OPERATIONS: dict[str, Callable[[KVPolicy, Payload, float], dict[str, Any]]] = {
    "renew": _renew,
    "release": _release,
    "demote": _demote,
    "promote": _promote,
    "verify": _verify,
    "admit": _admit,
    "update": _update,
    "heartbeat": _heartbeat,
    "leave": _leave,
    "events": _events,
    "occupancy": _occupancy,
    "stats": _stats,
}
