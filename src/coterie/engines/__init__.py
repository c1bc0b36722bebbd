"""How bytes reach sites."""
