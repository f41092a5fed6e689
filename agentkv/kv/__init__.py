"""KV policy of an engine: directives, leases, eviction order, admission. Pure: no engine, no clock."""

from agentkv.kv.admission import Admission, AdmissionMode, AdmissionState, Ticket
from agentkv.kv.capacity import KVGroup, bytes_per_token, pool_tokens, spec_bytes_per_token
from agentkv.kv.directive import Directive, LeaseClass, Rejected, WorkKind
from agentkv.kv.handle import KVHandle
from agentkv.kv.keeper import Grant, LeaseKeeper
from agentkv.kv.lease import BlockHolder, Lease, LeaseTable
from agentkv.kv.operations import perform
from agentkv.kv.order import CacheMode, eviction_key, in_order
from agentkv.kv.policy import KVPolicy
from agentkv.kv.prefetch import PrefetchLimit
from agentkv.kv.record import Record, Recorder, RecordKind
from agentkv.kv.room import plan_cuts
from agentkv.kv.settings import PolicySettings

__all__ = (
    "Admission",
    "AdmissionMode",
    "AdmissionState",
    "BlockHolder",
    "CacheMode",
    "Directive",
    "Grant",
    "KVGroup",
    "KVHandle",
    "KVPolicy",
    "Lease",
    "LeaseClass",
    "LeaseKeeper",
    "LeaseTable",
    "PolicySettings",
    "PrefetchLimit",
    "Record",
    "RecordKind",
    "Recorder",
    "Rejected",
    "Ticket",
    "WorkKind",
    "bytes_per_token",
    "eviction_key",
    "in_order",
    "perform",
    "plan_cuts",
    "pool_tokens",
    "spec_bytes_per_token",
)
