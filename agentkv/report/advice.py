"""Whether managing KV pays for a recorded workload, by four questions, and what to set."""

from math import ceil
from typing import Any, Literal

from attrs import frozen

from agentkv.report.demand import Ahead, Demand
from agentkv.report.early import LEAST_TIME

__all__ = ("Advice", "Answer", "Memory", "advise")

Verdict = Literal["yes", "no", "cannot tell"]

LONG_PROMPT = 3000
REUSABLE = 0.5
MANY_BRANCHES = 4
FREE_MEMORY = 0.2
WAITING = 0.05
# Of what is computed behind tools and branches: less is a wait that nobody sees become shorter.
LEAST_AHEAD = 0.1
FOLLOWED = (
    "what of results arrived in pieces, or was guessed right: "
    "a journal of runs with kv_transfer_mode 'auto' or 'bidirectional'"
)


@frozen(kw_only=True)
class Memory:
    """A device: bytes in all and those for KV; the tokens that its pool holds, and those that leases may hold."""

    total: int
    kv: int
    pool_tokens: int
    leasable_tokens: int


@frozen(kw_only=True)
class Answer:
    """One question, the answer, and the measured reason; ``missing`` says what would be needed to tell."""

    question: str
    verdict: Verdict
    reason: str
    missing: str = ""


@frozen(kw_only=True)
class Advice:
    """The four answers, what follows, and what to set: field of ``KVConfig`` or ``EngineKV`` to value and reason."""

    answers: tuple[Answer, ...]
    verdict: str
    settings: dict[str, tuple[Any, str]]


def advise(demand: Demand, memory: Memory | None) -> Advice:
    """Answer from the figures of a trace and, where it is known, of the device."""
    answers = (_long_prompts(demand), _branches(demand), _free_memory(demand, memory), _first_response(demand))
    return Advice(answers=answers, verdict=_verdict(demand, answers), settings=_settings(demand, memory, answers))


def _long_prompts(demand: Demand) -> Answer:
    question = f"Is the mean prompt over {LONG_PROMPT:,} tokens, with context that can be used again?"
    mean = f"mean prompt {demand.prompt_mean:,.0f} tokens in {demand.prompts:,} prompts"
    if demand.reusable is None:
        missing = "a journal of runs with kv_transfer_mode other than 'off', or a trace with text or block hashes"
        verdict: Verdict = "cannot tell" if demand.prompt_mean > LONG_PROMPT else "no"
        return Answer(question=question, verdict=verdict, reason=mean, missing=missing)
    reason = f"{mean}, {demand.reusable:.0%} of them at the front of an earlier prompt"
    enough = demand.prompt_mean > LONG_PROMPT and demand.reusable >= REUSABLE
    return Answer(question=question, verdict="yes" if enough else "no", reason=reason)


def _branches(demand: Demand) -> Answer:
    question = "Do many branches go on from one prefix?"
    if demand.branches is None:
        return Answer(
            question=question,
            verdict="cannot tell",
            reason="what chains have in common was not recorded",
            missing="a trace with text or block hashes",
        )
    if demand.branches < 2:
        reason = f"of {demand.chains:,} chains no two share a prefix that is worth keeping"
    else:
        reason = f"{demand.branches:,} of {demand.chains:,} chains go on from one prefix of {demand.trunk:,} tokens"
    return Answer(question=question, verdict="yes" if demand.branches >= MANY_BRANCHES else "no", reason=reason)


def _free_memory(demand: Demand, memory: Memory | None) -> Answer:
    question = f"Is at least {FREE_MEMORY:.0%} of the memory free for KV?"
    when = "at one time" if demand.timed else "if all its chains ran at once"
    need = f"the trace holds up to {demand.working_set:,} tokens {when}, its longest chain {demand.longest:,}"
    if memory is None:
        return Answer(question=question, verdict="cannot tell", reason=need, missing="--model and --memory")
    share = memory.kv / memory.total
    reason = f"{share:.0%} of the device, {memory.pool_tokens:,} tokens; {need}"
    fits = share >= FREE_MEMORY and demand.longest <= memory.pool_tokens
    return Answer(question=question, verdict="yes" if fits else "no", reason=reason)


def _first_response(demand: Demand) -> Answer:
    question = "Is first response what the service is judged by, even at some cost in throughput?"
    if demand.waiting is None:
        return Answer(
            question=question,
            verdict="cannot tell",
            reason="no times to first token were recorded",
            missing="a journal (agentkv run --store sqlite:PATH)",
        )
    reason = f"{demand.waiting:.1%} of the recorded time was spent waiting for first tokens"
    if demand.waiting < WAITING:
        return Answer(question=question, verdict="no", reason=f"{reason}: there is little to win by shortening it")
    if demand.ahead is None:
        missing = "what was known while tools ran: a journal"
        return Answer(question=question, verdict="cannot tell", reason=reason, missing=missing)
    reason = f"{reason}; {_known(demand.ahead)}"
    if demand.ahead.share < LEAST_AHEAD:
        missing = "" if demand.ahead.followed else FOLLOWED
        return Answer(question=question, verdict="no", reason=reason, missing=missing)
    return Answer(question=question, verdict="yes", reason=reason)


def _known(ahead: Ahead) -> str:
    if not ahead.tokens:
        return "no tool and no branch ran before one, so that there was no time to prefill in"
    known = f"of {ahead.tokens:,} tokens computed behind tools and branches {ahead.certain:.0%} were known before"
    return f"{known}, and {ahead.guessable:.0%} more could be guessed" if ahead.guessable else known


def _verdict(demand: Demand, answers: tuple[Answer, ...]) -> str:
    prompts, branches, memory, first = answers
    if prompts.verdict == "no":
        if branches.verdict == "yes":
            return f"Pays in part: {_shortcoming(demand)}, but leases keep the prefix that chains share."
        return f"Does not pay: {_shortcoming(demand)}. Plain prefix caching does."
    if memory.verdict == "no":
        return "Not yet: make room for KV first (a smaller or quantized model, FP8 KV, more devices)."
    if first.verdict == "no":
        return f"Pays in part: {_no_gain(demand)}. Keep what is alive, prefill nothing ahead."
    missing = "; ".join(answer.missing for answer in (prompts, memory, first) if answer.verdict == "cannot tell")
    if missing:
        return f"Cannot tell from this trace; what it has speaks for it. Missing: {missing}."
    return "Pays: manage the KV, and prefill ahead while tools run."


def _shortcoming(demand: Demand) -> str:
    return "prompts are short" if demand.prompt_mean <= LONG_PROMPT else "prompts have little in common"


def _no_gain(demand: Demand) -> str:
    if demand.waiting is not None and demand.waiting < WAITING:
        return "first tokens are hardly waited for"
    return "next to nothing of what first tokens wait for is known earlier"


def _settings(demand: Demand, memory: Memory | None, answers: tuple[Answer, ...]) -> dict[str, tuple[Any, str]]:
    settings: dict[str, tuple[Any, str]] = {"KVConfig.kv_transfer_mode": _mode(demand, answers)}
    if memory is not None:
        settings["EngineKV.admission"] = _admission(demand, memory)
        if memory.leasable_tokens < demand.longest <= memory.pool_tokens:
            ratio = ceil(100 * demand.longest / memory.pool_tokens) / 100
            settings["EngineKV.kv_pool_ratio"] = (ratio, "so that leases can hold the longest chain")
    settings["Runtime.run(working_set=...)"] = (
        demand.longest,
        "tokens of the longest chain, until runs have taught it",
    )
    return settings


def _mode(demand: Demand, answers: tuple[Answer, ...]) -> tuple[str, str]:
    if answers[0].verdict == "no":
        return "prefix", _shortcoming(demand)
    if demand.waiting is not None and demand.waiting < WAITING:
        return "prefix", _no_gain(demand)
    ahead = demand.ahead
    if ahead is None:
        return "auto", "what was known while tools ran was not recorded"
    if ahead.share < LEAST_AHEAD:
        # Where nothing is known early "auto" prefills nothing either, and where results stream it does.
        return ("prefix", _no_gain(demand)) if ahead.followed else ("auto", "whether results stream was not recorded")
    if demand.tool is not None and demand.tool < LEAST_TIME:
        return "prefix", f"tools take {demand.tool:.3f} s: there is no time to prefill in"
    time = "branches run" if demand.tool is None else f"tools take {demand.tool:.1f} s"
    guesses = "; guesses need tools that are declared read_only=True" if ahead.guessable else ""
    return "bidirectional", f"{time}: time to prefill in{guesses}"


def _admission(demand: Demand, memory: Memory) -> tuple[str, str]:
    if demand.working_set > memory.pool_tokens:
        times = demand.working_set / memory.pool_tokens
        return "auto", f"the working set is {times:.1f} times the pool: what does not fit must not be started"
    return "auto", f"the working set is {demand.working_set / memory.pool_tokens:.0%} of the pool: nothing will wait"
