"""Live sessions, which send and receive over real sockets."""
