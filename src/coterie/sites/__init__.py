"""The site's half of a run: its table, its rules, its own ledger, and the one exit."""
