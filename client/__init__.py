"""Producer, Consumer and Admin: one sans-IO core, an async shell and a blocking one."""
