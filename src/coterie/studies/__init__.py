"""Comparisons on data one owner holds: what federation costs and what pooling would have given."""
