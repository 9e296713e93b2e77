"""upsert-kafka: a key format and a value format (json, csv, raw, avro)."""
