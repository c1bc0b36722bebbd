"""Private answers: what rows contribute, added up exactly, with the site's share of the noise."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np

from coterie.arrays import Floats, Integers
from coterie.errors import BadAnswer
from coterie.maths.accounting import ROUNDING
from coterie.maths.discrete_gaussian import draws
from coterie.messages.contributions import CONTRIBUTIONS, PIECE_ROWS, Noisy, PrivateRequest
from coterie.messages.schema import LaidField
from coterie.messages.site_api import Memory
from coterie.methods.shared.whole_rows import whole_rows


def noisy_answer(memory: Memory, ask: PrivateRequest[Noisy], key: bytes) -> Noisy:
    """The sums of what rows contribute, plus noise drawn under the run's secret key.

    The same sums in answer to the same question get the same noise; anything else gets independent noise.
    """
    sums = exact_sums(memory, ask)
    said = ask.identity + b"".join(part.tobytes() for part in sums)
    secret = hmac.digest(key, said, hashlib.sha256)
    fields = ask.layout.fields
    noise = [_noise(ask, place, item, secret) for place, item in enumerate(fields)]
    return ask.layout.reply(*[part + own.reshape(part.shape) for part, own in zip(sums, noise, strict=True)])  # type: ignore[return-value]


def exact_sums(memory: Memory, ask: PrivateRequest[Noisy]) -> list[Integers]:
    """For each array of the answer the sum of all rows' contributions, before noise.

    A contribution that is longer than declared, or no whole number, is left out: a refusal would reveal something
    about it. A question that does not fit the rows' columns is refused by every site, also by one without rows.
    """
    view, fields = whole_rows(memory), ask.layout.fields
    sums = [np.zeros(item.shape, np.int64) for item in fields]
    _added_up(np.zeros((2, view.width)), memory, ask)
    for rows in view.pieces():
        for total, part in zip(sums, _added_up(rows, memory, ask), strict=True):
            total += part
    return sums


def _added_up(rows: Floats, memory: Memory, ask: PrivateRequest[Noisy]) -> list[Integers]:
    """For each array of the answer what some rows contribute together."""
    fields, sums = ask.layout.fields, []
    with np.errstate(all="ignore"):  # whatever a question does to a row, no refusal reveals it
        added = CONTRIBUTIONS[type(ask)](rows, memory, ask)
    if len(rows) > PIECE_ROWS or len(added) != len(fields):
        raise BadAnswer("there is not one contribution for each array")
    for item, norm, part in zip(fields, ask.norms, added, strict=True):
        lengths = part.norms_squared()
        if lengths.shape != (len(rows),):
            raise BadAnswer(f"there is not one contribution of each row to {item.name}")
        fits = (lengths <= norm * norm * (1 + ROUNDING)) & (lengths == np.rint(lengths))  # false for no number
        sums.append((part if fits.all() else part.only(fits)).added_up(item.shape))
    return sums


def _noise(ask: PrivateRequest[Noisy], place: int, item: LaidField, secret: bytes) -> Integers:
    """The site's own share for one array."""
    variance, key = ask.share_variance(place), hmac.digest(secret, b"array %d" % place, hashlib.sha256)
    if not item.spec.is_gram:
        return draws(variance, item.size, key)
    size = int(np.sqrt(2 * item.size))
    rows, columns = np.triu_indices(size)
    noise = draws(ask.share_variance_of_pairs(place), item.size, hmac.digest(key, b"pairs", hashlib.sha256))
    noise[rows == columns] = draws(variance, size, key)
    return noise
