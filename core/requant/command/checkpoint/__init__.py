"""`requant checkpoint`: convert a whole model, in one process or in several, and check the result."""
