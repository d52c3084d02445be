"""Inputs worth testing, each with the expected bits, the intermediate steps and the reasons for its selection."""
