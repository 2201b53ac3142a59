"""What the live page and the report show, as one JSON-able dictionary that does not grow with the number of rounds."""

from fedstein.report.views.build import views

__all__ = ["views"]
