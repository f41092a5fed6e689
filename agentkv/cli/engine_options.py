"""Options that say which engine to start, and how."""

import argparse
import json
from collections.abc import Iterable
from typing import Any

from agentkv.errors import SetupError

__all__ = ("add_engine_option", "parse_engine_options")


def add_engine_option(parser: argparse.ArgumentParser) -> None:
    """Declare ``--engine-option``."""
    parser.add_argument(
        "--engine-option",
        metavar="NAME=JSON",
        action="append",
        default=[],
        help="a start option of the engine, as max_model_len=2048; may be repeated",
    )


def parse_engine_options(texts: Iterable[str]) -> dict[str, Any]:
    """Options by name. Raises ``SetupError`` showing the text that is not NAME=JSON."""
    return dict(_parse(text) for text in texts)


def _parse(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        raise SetupError(
            f"--engine-option {text!r}: give NAME=JSON, the value as JSON: max_num_seqs=64 or dtype='\"float32\"'"
            if separator
            else f"--engine-option {text!r}: give NAME=JSON, as max_model_len=2048"
        ) from None
