"""preempt-oracle: conformance oracle for KV-cache preemption in LLM serving engines."""
