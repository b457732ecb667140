"""Preparation: scales, categories and fill values that parties agree on by sums, counts and sets, without sharing rows."""
