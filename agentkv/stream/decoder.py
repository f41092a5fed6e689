"""Bytes to text, piece by piece."""

import codecs

__all__ = ("text_decoder",)


def text_decoder(encoding: str) -> codecs.IncrementalDecoder:
    """A decoder that gives U+FFFD for bytes that are not in ``encoding``.

    Raises ``LookupError``, ``TypeError`` or ``ValueError`` where ``encoding`` is none of text. A few encodings cannot
    replace what they do not understand, as UTF-16 without its first two bytes: then ``decode`` raises ``UnicodeError``.
    """
    # Codecs that are none of text, as "hex" is, are refused here, and would go wrong with the first bytes.
    b"x".decode(encoding, "replace")
    return codecs.getincrementaldecoder(encoding)("replace")
