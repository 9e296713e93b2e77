"""A whole database in one streaming query: `sync_database`.

=================  ==============================================================================
module             its part
=================  ==============================================================================
`sync_database`    the public function, and what it does in each micro-batch
`route`            on the workers: the source table of each record, and the columns that its rows
                   have
`table_options`    what the user says about single tables
`table_schema`     a table's columns and key: inferred, extended, widened, written as JSON
`schema_store`     the folder of these files
`table_changes`    the decoded changes of one table: the last of each key
`facts`            what must stay as it is, and the checks of a micro-batch against it
`table_sync`       one table: its schema, its changes, its target
=================  ==============================================================================
"""
