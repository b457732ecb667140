"""The papers' tables, computed again: `fedpact reproduce NAME` prints them beside the published figures."""
