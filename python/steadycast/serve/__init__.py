"""`steadycast serve`: a source for browsers, without a plug-in and without a server between."""
