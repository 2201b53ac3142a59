"""Starting a deployment: app folders, certificates, commands, and fleets of processes for trials and tests."""
