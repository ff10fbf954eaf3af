"""What carries events and figures out of the process: a journal, Prometheus, OpenTelemetry. Each is off unless asked for."""
