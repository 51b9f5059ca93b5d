"""Lockstep: the reference scheduler, with vLLM's own block order, predicts a real vLLM scheduler step by step."""
