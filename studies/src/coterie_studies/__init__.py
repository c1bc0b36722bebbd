"""The papers' tables and figures again, and what federation costs on data one owner holds."""
