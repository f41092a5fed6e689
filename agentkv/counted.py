"""A number and what it counts, for people."""

__all__ = ("counted",)


def counted(number: float, noun: str) -> str:
    """``1 turn``, ``0 turns``, ``2,000 turns``: ``noun`` in the singular, whose plural takes an s or, after ch, es."""
    ending = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}{ending}"
