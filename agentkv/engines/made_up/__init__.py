"""What a simulated engine's model says where there is no script."""

from agentkv.engines.made_up.auto_model import AutoModel

__all__ = ("AutoModel",)
