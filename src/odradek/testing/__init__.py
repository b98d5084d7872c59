"""What tests need: an embedded broker with a clock and faults, pytest fixtures, disks that fail."""
