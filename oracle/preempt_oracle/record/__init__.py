"""Recording an engine in production: observed by the adapters' own eyes, written as trace v1, checked as it goes."""
