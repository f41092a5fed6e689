"""Every prompt token is accounted for exactly once, by cause."""

from attrs import asdict
from hypothesis import given
from hypothesis import strategies as st

from agentkv.engines import Receipt, Usage
from agentkv.report import Ask, Ledger, Residency, Step

PARTS = ("resident", "prefilled", "new", "tail", "cold", "evicted", "diverged", "salted", "uncached")
KEYS = [bytes([n]) for n in range(64)]
BLOCK = 32


def ask(prompt: int, known: int, predicted: int = 0, **more: object) -> Ask:
    values = {"node": "n", "visit": 1, "agent": "a", "keys": KEYS[: prompt // BLOCK]} | more
    return Ask(prompt=prompt, known=known, predicted=predicted, **values)  # type: ignore[arg-type]


def book(ledger: Ledger, asked: Ask, cached: int, generated: int = 10) -> Step:
    usage = Usage(prompt=asked.prompt, cached=cached, generated=generated)
    return ledger.generated(asked, usage, KEYS[: (asked.prompt + generated - 1) // BLOCK])


def receipt(prompt: int, cached: int) -> Receipt:
    return Receipt(prompt=prompt, cached=cached, sent_at=0.0, done_at=1.0)


def parts(step: Step) -> dict[str, int]:
    return {name: tokens for name, tokens in asdict(step).items() if name in PARTS and tokens}


def test_a_first_prompt_is_cold_where_it_was_known_and_new_where_not() -> None:
    step = book(Ledger("run", Residency(BLOCK), None), ask(110, known=70), cached=0)
    assert parts(step) == {"cold": 64, "tail": 6, "new": 40}


def test_what_was_generated_is_resident_but_for_the_last_token() -> None:
    ledger = Ledger("run", Residency(BLOCK), None)
    book(ledger, ask(100, known=0), cached=0, generated=28)
    assert ledger.predict(KEYS[:6], 200) == 96
    book(ledger, ask(100, known=0), cached=96, generated=29)
    assert ledger.predict(KEYS[:6], 200) == 128


def test_prefilled_ahead_and_used() -> None:
    ledger = Ledger("run", Residency(BLOCK), None)
    book(ledger, ask(100, known=0), cached=0, generated=29)
    ledger.prefetched(KEYS[:6], receipt(192, cached=128))
    step = book(ledger, ask(240, known=200, predicted=192), cached=192)
    assert parts(step) == {"resident": 128, "prefilled": 64, "tail": 8, "new": 40}
    totals = ledger.totals()
    assert (totals.prefetched, totals.prefetched_used, totals.wasted) == (64, 64, 0)


def test_a_prefetch_that_nobody_used_is_waste() -> None:
    ledger = Ledger("run", Residency(BLOCK), None)
    ledger.prefetched(KEYS[:6], receipt(192, cached=0))
    ledger.aborted(64)
    totals = ledger.totals()
    assert (totals.wasted, totals.aborted) == (256, 64)
    assert totals.reduction_total == 0.0


def test_evicted() -> None:
    ledger = Ledger("run", Residency(BLOCK), None)
    book(ledger, ask(200, known=0), cached=0)
    step = book(ledger, ask(230, known=209, predicted=192), cached=64)
    assert parts(step) == {"resident": 64, "evicted": 128, "tail": 17, "new": 21}


def test_an_aligned_prompt_computes_its_last_block_and_that_is_no_eviction() -> None:
    ledger = Ledger("run", Residency(BLOCK), None)
    book(ledger, ask(256, known=0), cached=0)
    step = book(ledger, ask(256, known=256, predicted=224), cached=224)
    assert parts(step) == {"resident": 224, "tail": 32}


def test_salted() -> None:
    residency = Residency(BLOCK)
    book(Ledger("one", residency, "a"), ask(128, known=0), cached=0)
    step = book(Ledger("two", residency, "b"), ask(128, known=128), cached=0)
    assert parts(step) == {"salted": 128}


def test_diverged() -> None:
    ledger = Ledger("run", Residency(BLOCK), None)
    keys = KEYS[:1] + KEYS[40:45]
    book(ledger, ask(200, known=0), cached=0)
    step = book(ledger, ask(200, known=160, keys=keys, diverged_at=40), cached=32)
    assert parts(step) == {"resident": 32, "diverged": 128, "new": 40}


def test_adopted_blocks_count_as_prefilled() -> None:
    ledger = Ledger("run", Residency(BLOCK), None)
    book(ledger, ask(100, known=0), cached=0, generated=29)
    ledger.aborted(64)
    step = book(ledger, ask(240, known=200, predicted=128, adopted=True), cached=192)
    assert parts(step)["prefilled"] == 64
    assert ledger.totals().wasted == 0


def test_reuse_switched_off() -> None:
    ledger = Ledger("run", Residency(BLOCK), None, reuse=False)
    step = book(ledger, ask(100, known=100), cached=0)
    assert parts(step) == {"uncached": 100}
    assert ledger.predict(KEYS[:3], 100) == 0


@given(
    st.lists(
        st.tuples(st.integers(1, 600), st.integers(0, 600), st.integers(0, 20), st.booleans(), st.booleans()),
        max_size=6,
    )
)
def test_parts_add_up_to_the_prompt(asks: list[tuple[int, int, int, bool, bool]]) -> None:
    ledger = Ledger("run", Residency(BLOCK), None)
    for prompt, known, blocks, adopted, prefetch in asks:
        if prefetch:
            ledger.prefetched(KEYS[: known // BLOCK], receipt(known // BLOCK * BLOCK, cached=0))
        cached = min(blocks, (prompt - 1) // BLOCK) * BLOCK
        step = book(ledger, ask(prompt, known=min(known, prompt), adopted=adopted), cached)
        assert sum(parts(step).values()) == prompt
        assert step.resident + step.prefilled == cached
    totals = ledger.totals()
    assert totals.prompt == totals.cached + totals.computed
    assert totals.wasted >= 0
