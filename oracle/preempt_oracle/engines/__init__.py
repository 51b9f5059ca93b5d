"""Adapters that run real engines in a child process, and the environments they run in."""
