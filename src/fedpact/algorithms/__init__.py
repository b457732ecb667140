"""One file per method, on the narrow waist of `protocol`."""
