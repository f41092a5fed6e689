"""How long a tool takes: a distribution that is drawn from with a given random number generator."""

import math
from random import Random
from typing import Literal

from attrs import frozen

from agentkv.errors import SetupError

__all__ = ("Delay",)

_FORMS = "'LO:HI' (uniform, in seconds) or 'lognormal:MEDIAN:SIGMA' (median in seconds, sigma of its logarithm)"

# Beyond these a draw is no number of seconds that anything could wait for, or no number at all.
LONGEST = 1e9
WIDEST = 10


@frozen
class Delay:
    """``uniform`` between ``first`` and ``second`` seconds, or ``lognormal`` with median and sigma."""

    kind: Literal["uniform", "lognormal"]
    first: float
    second: float

    @classmethod
    def parse(cls, text: str) -> "Delay":
        """Read ``LO:HI`` or ``lognormal:MEDIAN:SIGMA``. Raises ``SetupError``."""
        kind, *numbers = text.split(":") if text.startswith("lognormal:") else ("uniform", *text.split(":"))
        try:
            first, second = map(float, numbers)
        except ValueError:
            raise SetupError(f"a delay is {_FORMS}; got {text!r}") from None
        if kind == "uniform" and 0 <= first <= second <= LONGEST:
            return cls("uniform", first, second)
        if kind == "lognormal" and 0 < first <= LONGEST and 0 <= second <= WIDEST:
            return cls("lognormal", first, second)
        bounds = {
            "uniform": f"LO is at least 0, HI at least LO and at most {LONGEST:g} s",
            "lognormal": f"a median is above 0 and at most {LONGEST:g} s, a sigma from 0 to {WIDEST}",
        }
        raise SetupError(f"a delay is {_FORMS}; {text!r} is out of bounds: {bounds[kind]}")

    def draw(self, rng: Random) -> float:
        """One delay in seconds."""
        if self.kind == "uniform":
            return rng.uniform(self.first, self.second)
        return rng.lognormvariate(math.log(self.first), self.second)

    def __str__(self) -> str:
        numbers = f"{self.first:g}:{self.second:g}"
        return numbers if self.kind == "uniform" else f"{self.kind}:{numbers}"
