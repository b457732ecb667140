"""The version, read by the package and by what it saves."""

VERSION = "0.2.0"
