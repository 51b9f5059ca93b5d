"""The command `preempt-oracle`. One module per command, imported when it is asked for."""
