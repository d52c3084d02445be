"""Requests for every operation, made from the descriptions: what is fuzzed, measured, digested and compared."""
