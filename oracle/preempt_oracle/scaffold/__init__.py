"""Templates of a new adapter: `python` for a scheduler in Python, `stdio` for one in any other language."""
