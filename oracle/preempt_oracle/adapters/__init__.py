"""How the oracle reaches a scheduler: in this process, or as a child process on stdio. One protocol, two transports."""
