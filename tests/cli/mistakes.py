"""What a mistake on the command line looks like."""

import pytest

from agentkv.cli.main import main


def one_line(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str) -> None:
    """Assert that the command ends with one line that has ``message`` in it."""
    status = main(arguments)
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert err.startswith("agentkv: ")
    assert err.count("\n") == 1
    assert message in err
