"""The formats: one module or package for each CDC tool."""
