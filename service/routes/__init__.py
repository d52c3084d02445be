"""The routes, one file per face and topic."""
