"""Schedulers of other projects that run the tasks of a plan on many machines."""
