"""Why an engine does not start, told to the process that starts it, which vLLM leaves without a reason."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agentkv.errors import AgentKVError

__all__ = ("REPORT", "reporting")

#: The environment variable that names the file to write to.
REPORT = "AGENTKV_START_REPORT"


@contextmanager
def reporting() -> Iterator[None]:
    """Write down the message of an error of ours that ends what runs inside, if whoever started the engine reads it."""
    try:
        yield
    except AgentKVError as error:
        if path := os.environ.get(REPORT):
            with suppress(OSError):
                Path(path).write_text(str(error), encoding="utf-8")
        raise
