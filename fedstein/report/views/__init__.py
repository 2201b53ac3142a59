"""What the live page and the report show, as one JSON-able dictionary that does not grow with the number of rounds."""

from fedstein.report.views.build import VERSION, folder_names, run_list, views, views_of
from fedstein.report.views.details import details

__all__ = ["VERSION", "details", "folder_names", "run_list", "views", "views_of"]
