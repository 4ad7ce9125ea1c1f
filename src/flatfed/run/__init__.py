"""What a run leaves on the disk, and who watches it."""
