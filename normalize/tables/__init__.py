"""Tables that stay equal to their source: `sync_table`, `sync_database`, `apply_changes`.

==================================  =============================================================
module                              its part
==================================  =============================================================
`sync_table`                        the public function for one table
`job`                               one table: its schema, its changes, its target
`query`                             what the tables of a query share: Kafka's topics, sessions
`database`, `database_target`       a router and many jobs, and where their tables are
`route`                             on the workers: the source table of each record, and the
                                    columns that its rows have
`table_options`                     what the user says about tables, and how one is kept
`schema`, `schema_store`, `facts`   a table's columns and key: inferred, extended, widened; the
                                    folder of their files; what must stay as it is
`changes`                           the decoded changes of one table: the last of each key
`expressions`                       what is computed of changes before they are merged
`merge`                             the plan of a MERGE, which every writer renders
`apply`, `latest`                   a changelog that is applied to a table
`history`                           versions of rows (SCD type 2)
`targets`, `table_spec`,            a table to write, its columns, and the record of the
`batches`                           micro-batches that it has
`writers`                           Delta and Iceberg by Spark, Delta by delta-rs, databases
==================================  =============================================================
"""
