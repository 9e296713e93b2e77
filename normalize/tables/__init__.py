"""Tables that stay equal to their source: the plan of a MERGE, and its renderings."""
