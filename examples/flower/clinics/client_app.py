"""Each clinic runs Fedstein's client. Its rows and its site stay in the node's own folders."""

from fedstein.flower import client_app

app = client_app
