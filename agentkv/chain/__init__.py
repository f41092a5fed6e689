"""From conversations to token ids: tokenizer, chat template, call dialects, and the append-only chain."""

from agentkv.chain.chain import Chain, Segment, SegmentKind
from agentkv.chain.constraint import LABEL_LINE, LabelShape, Turn, TurnShape, check_label
from agentkv.chain.format import ChatFormat
from agentkv.chain.messages import Message, ToolDefinition, from_openai, to_openai
from agentkv.chain.probe import ProbeReport, Verdict
from agentkv.chain.tokenizer import Piece, Tokenizer
from agentkv.chain.truncate import Keep, lasting, truncate

__all__ = (
    "LABEL_LINE",
    "Chain",
    "ChatFormat",
    "Keep",
    "LabelShape",
    "Message",
    "Piece",
    "ProbeReport",
    "Segment",
    "SegmentKind",
    "Tokenizer",
    "ToolDefinition",
    "Turn",
    "TurnShape",
    "Verdict",
    "check_label",
    "from_openai",
    "lasting",
    "to_openai",
    "truncate",
)
