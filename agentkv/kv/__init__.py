"""KV policy of an engine: directives, leases, eviction order, admission. Pure: no engine, no clock."""

from agentkv.kv.account import WorkAccount
from agentkv.kv.admission import Admission, AdmissionMode
from agentkv.kv.capacity import KVGroup, KVPool, bytes_per_token, pool_of, spec_bytes_per_token
from agentkv.kv.directive import Directive, LeaseClass, Rejected, WorkKind
from agentkv.kv.grant import Grant
from agentkv.kv.handle import KVHandle
from agentkv.kv.keeper import LeaseKeeper
from agentkv.kv.layers import DTYPE_BYTES, LayerKind
from agentkv.kv.lease import BlockHolder, Lease, LeaseTable
from agentkv.kv.least_squares import LeastSquares
from agentkv.kv.model_shape import ModelShape
from agentkv.kv.mover import TierPool
from agentkv.kv.operations import perform, reset_answer
from agentkv.kv.order import CacheMode, eviction_key, in_order
from agentkv.kv.policy import KVPolicy
from agentkv.kv.prefetch_limit import PrefetchLimit
from agentkv.kv.prefill_cost import PrefillCost
from agentkv.kv.record import Record, Recorder, RecordKind
from agentkv.kv.requests import LiveRequests
from agentkv.kv.room import plan_cuts
from agentkv.kv.settings import PolicySettings
from agentkv.kv.step_shares import StepShares
from agentkv.kv.step_timer import StepTimer
from agentkv.kv.ticket import AdmissionState, Ticket
from agentkv.kv.tier import Tier, stores_avoided
from agentkv.kv.transfer import Transfer
from agentkv.kv.work import COLD, Rank, WaitingOrder, rank_of

__all__ = (
    "COLD",
    "DTYPE_BYTES",
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
    "KVPool",
    "LayerKind",
    "Lease",
    "LeaseClass",
    "LeaseKeeper",
    "LeaseTable",
    "LeastSquares",
    "LiveRequests",
    "ModelShape",
    "PolicySettings",
    "PrefetchLimit",
    "PrefillCost",
    "Rank",
    "Record",
    "RecordKind",
    "Recorder",
    "Rejected",
    "StepShares",
    "StepTimer",
    "Ticket",
    "Tier",
    "TierPool",
    "Transfer",
    "WaitingOrder",
    "WorkAccount",
    "WorkKind",
    "bytes_per_token",
    "eviction_key",
    "in_order",
    "perform",
    "plan_cuts",
    "pool_of",
    "rank_of",
    "reset_answer",
    "spec_bytes_per_token",
    "stores_avoided",
)
