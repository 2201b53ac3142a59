"""The leaderboard: tasks x methods x seeds, every method tuned with the same number of trials, and one page."""

from fedstein.studies.leaderboard.page import write_page
from fedstein.studies.leaderboard.plan import Board, read_board
from fedstein.studies.leaderboard.play import play_board

__all__ = ["Board", "play_board", "read_board", "write_page"]
