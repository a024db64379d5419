"""Live sessions: what is sent and received over real sockets."""
