"""Typed messages and their bytes: the only things that ever travel between a site and a server."""
