"""What tests share: servers, Spark, jobs run as processes, recorded topics, and data generators."""
