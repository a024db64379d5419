"""Video: ladders of quantizers, what a viewer receives of them, and how good it looks."""
