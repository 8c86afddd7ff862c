"""The trained miniature: its corpus and its training."""
