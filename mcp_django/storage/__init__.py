"""What outlives a request: in this release the doorbell that wakes listening streams."""
