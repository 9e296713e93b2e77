"""What this library uses of Spark that is no public interface: read this room when Spark changes.

No other module names an attribute of PySpark that begins with an underscore, nor py4j.
"""
