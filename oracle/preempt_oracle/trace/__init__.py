"""Trace v1: what an engine did, as JSON lines. `reader.read` and `writer.Writer` are the ends, `wire` the events."""
