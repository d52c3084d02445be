"""A plan before it is run: as numbers, as JSON for programs and workers, and as text for a person."""
