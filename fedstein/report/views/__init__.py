"""The views of the live page and the report, as one JSON dictionary whose size does not grow with the rounds."""

from fedstein.report.views.build import views

__all__ = ["views"]
