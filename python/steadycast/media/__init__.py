"""Video: clips encoded at several quantizers (ladders), the pictures that a viewer receives, and their quality."""
