"""The writers of tables: `lake` (Spark), `delta_rs`, and `jdbc` with its `dialects`."""
