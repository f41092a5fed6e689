"""The account of requests that are in vLLM, without vLLM."""

import pytest

from agentkv.engines.vllm_account import VLLMAccount
from agentkv.errors import EngineError


def test_an_id_is_one_requests_as_long_as_that_is_in_the_engine() -> None:
    account = VLLMAccount()
    with account.request("same", 3):
        with pytest.raises(EngineError, match="request id 'same' is in use"), account.request("same", 4):
            pass
        assert account.live() == ["same"]
    with account.request("same", 5):
        assert account.live() == ["same"]
