"""Compare a target table with its source table: `verify_table`."""
