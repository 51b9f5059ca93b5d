"""What people and machines read: terminal text, JSON, JUnit. Whatever an engine or a file said is escaped."""
