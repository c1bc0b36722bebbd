"""Encoding and decoding of messages.

A frame is a fixed header, the method's name, and one of four forms:

- question: ``transcript`` (8 bytes), ``seen`` (1), then the request's body;
- recall: the bodies of the run's remembered requests, to bring a site up to date; the answer is empty;
- answer: a tag of the answer's layout (4), its numbers, a checksum (4); the question fixes all sizes;
- refusal: one code (1).

Any byte string decodes to a valid message or raises :class:`MalformedMessage` (:class:`BadAnswer` for answers).
No more memory is allocated than the frame holds.
"""

from coterie.messages.codec.arrays import pack_arrays as pack_arrays
from coterie.messages.codec.arrays import reply_from_arrays as reply_from_arrays
from coterie.messages.codec.arrays import unpack_arrays as unpack_arrays
from coterie.messages.codec.bodies import Body as Body
from coterie.messages.codec.bodies import decode_body as decode_body
from coterie.messages.codec.bodies import encode_body as encode_body
from coterie.messages.codec.bodies import kind_of as kind_of
from coterie.messages.codec.envelope import FORMAT_VERSION as FORMAT_VERSION
from coterie.messages.codec.envelope import MAX_ANSWER_BYTES as MAX_ANSWER_BYTES
from coterie.messages.codec.envelope import MAX_FRAME_BYTES as MAX_FRAME_BYTES
from coterie.messages.codec.envelope import NO_TRANSCRIPT as NO_TRANSCRIPT
from coterie.messages.codec.envelope import Envelope as Envelope
from coterie.messages.codec.envelope import Form as Form
from coterie.messages.codec.envelope import extend_transcript as extend_transcript
from coterie.messages.codec.envelope import read_envelope as read_envelope
from coterie.messages.codec.envelope import roster_digest as roster_digest
from coterie.messages.codec.envelope import site_tag as site_tag
from coterie.messages.codec.frames import EMPTY_LAYOUT as EMPTY_LAYOUT
from coterie.messages.codec.frames import Decoded as Decoded
from coterie.messages.codec.frames import answer_header_bytes as answer_header_bytes
from coterie.messages.codec.frames import decode_answer as decode_answer
from coterie.messages.codec.frames import decode_question as decode_question
from coterie.messages.codec.frames import encode_answer as encode_answer
from coterie.messages.codec.frames import encode_question as encode_question
from coterie.messages.codec.frames import encode_recall as encode_recall
from coterie.messages.codec.frames import encode_refusal as encode_refusal
from coterie.messages.codec.frames import question_header_bytes as question_header_bytes
