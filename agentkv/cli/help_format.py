"""How ``--help`` shows defaults."""

import argparse

from typing_extensions import override

__all__ = ("DefaultsFormatter",)


class DefaultsFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Behind each help its default, where there is one: that None or an empty list is meant says nothing."""

    @override
    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, []) else super()._get_help_string(action)
