"""The writers of tables: `delta` (with `delta_rs`) and `iceberg` over `lake`, and `jdbc` with its `dialects`."""
