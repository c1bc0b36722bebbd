"""Encoding and decoding of messages.

A frame is a fixed header, the method's name, and one of four forms:

- question: ``transcript`` (8 bytes), ``seen`` (1), then the request's body;
- recall: the bodies of the run's remembered requests, to bring a site up to date; the answer is empty;
- answer: a tag of the answer's layout (4), its numbers, a checksum (4); the question fixes all sizes;
- refusal: one code (1).

Any byte string decodes to a valid message or raises :class:`MalformedMessage` (:class:`BadAnswer` for answers).
No more memory is allocated than the frame holds.
"""

from coterie.messages.codec.arrays import pack_arrays, reply_from_arrays, unpack_arrays
from coterie.messages.codec.bodies import Body, decode_body, encode_body, kind_of
from coterie.messages.codec.envelope import (
    FORMAT_VERSION,
    MAX_ANSWER_BYTES,
    MAX_FRAME_BYTES,
    NO_TRANSCRIPT,
    Envelope,
    Form,
    extend_transcript,
    read_envelope,
    roster_digest,
    site_tag,
)
from coterie.messages.codec.frames import (
    EMPTY_LAYOUT,
    Decoded,
    answer_header_bytes,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
    encode_recall,
    encode_refusal,
    question_header_bytes,
)

__all__ = [
    "EMPTY_LAYOUT",
    "FORMAT_VERSION",
    "MAX_ANSWER_BYTES",
    "MAX_FRAME_BYTES",
    "NO_TRANSCRIPT",
    "Body",
    "Decoded",
    "Envelope",
    "Form",
    "answer_header_bytes",
    "decode_answer",
    "decode_body",
    "decode_question",
    "encode_answer",
    "encode_body",
    "encode_question",
    "encode_recall",
    "encode_refusal",
    "extend_transcript",
    "kind_of",
    "pack_arrays",
    "question_header_bytes",
    "read_envelope",
    "reply_from_arrays",
    "roster_digest",
    "site_tag",
    "unpack_arrays",
]
