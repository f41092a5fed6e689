"""What a model was asked."""

from agentkv.engines.base import GenerateRequest
from agentkv.engines.sim_output import Responder, ScriptedOutput
from agentkv.testing.script import run_of

__all__ = ("Recording",)


class Recording:
    """A responder that notes each request and lets another one answer: ``sim(Recording(Script([...])))``."""

    def __init__(self, respond: Responder) -> None:
        self.requests: list[GenerateRequest] = []
        self._respond = respond

    def __call__(self, request: GenerateRequest) -> ScriptedOutput:
        """The other's output for one request."""
        self.requests.append(request)
        answer = self._respond(request)
        return answer if isinstance(answer, ScriptedOutput) else ScriptedOutput(answer)

    def prompts(self, run_id: str | None = None) -> list[list[int]]:
        """The prompts so far, in the order of the requests; of one run, or of all."""
        return [request.token_ids for request in self.requests if run_id in (None, run_of(request))]
