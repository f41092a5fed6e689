"""How families of models write tool definitions, calls and results."""

from agentkv.chain.dialects.base import Dialect
from agentkv.chain.dialects.detect import detect
from agentkv.chain.dialects.hermes import HermesDialect
from agentkv.chain.dialects.llama3 import Llama3Dialect
from agentkv.chain.dialects.mistral import MistralDialect

__all__ = ("Dialect", "HermesDialect", "Llama3Dialect", "MistralDialect", "detect")
