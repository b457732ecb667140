"""Promises: a candidate is trained on one part of every party's rows, and what it promises is tested once on the other."""
