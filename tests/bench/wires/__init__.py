"""What memory costs on Responses and Messages: CPU, delay and the bill of long agent sessions."""
