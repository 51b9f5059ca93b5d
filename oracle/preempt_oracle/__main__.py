"""`python -m preempt_oracle` is the command `preempt-oracle`."""

from preempt_oracle.cli.main import main

main()
