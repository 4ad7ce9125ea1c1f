"""Where clients train: in this process, or one process a core."""
