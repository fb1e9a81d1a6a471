"""What models are measured by, one file each."""
