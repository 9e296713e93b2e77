"""Values: SQL types, the producers' encodings, reading and writing (one module a type family), equality."""
