"""Recorded topics and the tables that they must end in; see README.md."""
