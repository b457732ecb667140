"""A model for every party, in a set of its own."""
