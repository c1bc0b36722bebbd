"""Turns a sum into a masked sum: the server sees the sum over a roster, and nothing of any one site.

Whoever imports anything of it has the checks of verified runs as well: no site answers without them.
"""

import coterie.secure.replay  # noqa: F401
