"""The HTML page of a run: what broke, in words, and a timeline of requests, queues and blocks."""
