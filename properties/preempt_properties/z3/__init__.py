"""The one door to the solver. Importing this package does not import it; `pool` and `verdict` never do."""
