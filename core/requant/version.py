"""The version of Requant, which packages, metrics and certificates state."""

VERSION = "0.1.0"
