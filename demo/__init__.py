"""The demo: recorded topics of real producers become changelogs.

The changelogs become the tables of the source databases.
"""
