"""Digests of data and of problems, to check that a saved run belongs to them."""

from fedpact.federation.fingerprint import digest_of_data as digest_of_data
from fedpact.problem.fingerprint import digest as digest
