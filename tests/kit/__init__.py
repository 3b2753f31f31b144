"""What tests of all folders use: clients, servers, processes, databases, services."""
