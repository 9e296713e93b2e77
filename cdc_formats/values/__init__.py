"""Values: SQL types, the producers' encodings, reading and writing, equality.

Each type family has a module.
"""
