"""What a query reports while it runs: counts in its progress, warnings in the driver's log."""
