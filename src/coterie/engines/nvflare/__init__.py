"""Sites as separate organisations: bytes carried by NVFlare over mutually authenticated TLS.

Everything that knows NVFlare is in this package (`pip install 'coterie[nvflare]'`): start-up kits (``kits``), the
processes made of them (``processes``), the site's end (``site_end``), the center's (``center``), the analyst's
(``session``). What travels are the same bytes as in one process; a job carries a configuration and no code.
"""
