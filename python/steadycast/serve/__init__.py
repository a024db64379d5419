"""`steadycast serve`: sends a source to browsers. They need no plug-in, and no media server in between."""
