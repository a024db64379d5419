"""Video: ladders of quantizers, the pictures that a viewer receives, and their quality."""
