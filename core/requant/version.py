"""The version of Requant, which packages, metrics and certificates state."""

VERSION = "1.0.0"
