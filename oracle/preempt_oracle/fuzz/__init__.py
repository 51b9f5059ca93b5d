"""Fuzzing: search for workloads that matter, and make what they break as short as it can be."""
