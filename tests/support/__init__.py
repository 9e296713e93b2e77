"""What tests share: servers, Spark, jobs that run as processes, recorded topics, and generators of data."""
