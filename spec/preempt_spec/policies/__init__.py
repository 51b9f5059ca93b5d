"""Where engines may differ: knobs, what they mean, and the profiles of named engines."""
