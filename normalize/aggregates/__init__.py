"""Aggregates of changelogs."""
