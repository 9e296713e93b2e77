"""The demo: recorded topics of real producers become changelogs, and the changelogs the tables of the source databases."""
