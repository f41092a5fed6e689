"""Policy of prefilling ahead, pure: what to follow, and in which steps."""

from agentkv.follow.steps import follows, next_step

__all__ = ("follows", "next_step")
