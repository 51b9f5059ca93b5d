"""The HTML page of a matrix: engines by families of rules, and what stands behind each cell."""
