"""MkDocs hooks: pages and figures that live outside ``docs/`` become part of the site.

``README.md`` is the home page; the experiments, the benchmarks and the Flower example keep their folders. Links in
every page are written for the repository. ``on_page_markdown`` rewrites them for the site, so they work in both places.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SINGLE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples/README.md",
    "examples/flower/README.md": "examples/flower/README.md",
}
FOLDERS = ("experiments", "benchmarks")
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")


def site_path(repository_path: str) -> str | None:
    """Where a file of the repository is on the site; None for one that is not part of it."""
    if repository_path in SINGLE:
        return SINGLE[repository_path]
    folder, _, rest = repository_path.partition("/")
    if folder == "docs" and rest:
        return rest
    return repository_path if folder in FOLDERS else None


def repository_path(site: str) -> str:
    """The counterpart of ``site_path``."""
    for source, target in SINGLE.items():
        if target == site:
            return source
    return site if site.partition("/")[0] in FOLDERS else f"docs/{site}"


def rewritten(markdown: str, page: str) -> str:
    """The Markdown of a page with its links to other files of the repository turned into links of the site."""

    def link(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        if "://" in target or target.startswith(("/", "mailto:")):
            return match[0]
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(repository_path(page)), target))
        if (ROOT / wanted).is_dir():
            wanted = posixpath.join(wanted, "README.md")
        found = site_path(wanted)
        if found is None:
            return match[0]
        return f"{before}{posixpath.relpath(found, posixpath.dirname(page) or '.')}{after}"

    return LINK.sub(link, markdown)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and figures from outside ``docs/``."""
    from mkdocs.structure.files import File  # here, so that tests of the links do not need MkDocs

    sources = [Path(name) for name in SINGLE]
    for folder in FOLDERS:
        sources += [path.relative_to(ROOT) for path in sorted((ROOT / folder).rglob("*")) if path.is_file()]
    for source in sources:
        target = site_path(source.as_posix())
        if target and "__pycache__" not in source.parts:
            files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite the links of one page; the home page needs no list of pages beside it."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation"]
    return rewritten(markdown, page.file.src_uri)
