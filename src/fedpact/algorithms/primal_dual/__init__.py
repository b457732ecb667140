"""A primal-dual method of first order, rows split: the one for differential privacy."""
