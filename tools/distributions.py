"""Get pinned, checksummed distributions from the package index that pip is configured to use.

The settings are pip's own: index-url, extra-index-url, find-links, no-index, cert, proxy. Files are
kept in a cache directory, and their sha256 is checked each time. Nothing that is downloaded is run.
"""

from __future__ import annotations

import ast
import concurrent.futures
import dataclasses
import hashlib
import logging
import os
import pathlib
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from environments.errors import UserError

DOWNLOAD_TIMEOUT_S = 60.0
_DOWNLOADS = 4


@dataclasses.dataclass(frozen=True)
class Distribution:
    """One file on the package index: a source distribution or a wheel.

    Attributes:
        distribution, version, file: its names on the package index, and the pinned version.
        sha256: checksum of the file.
        licence: licence of what is used of it.
    """

    distribution: str
    version: str
    file: str
    sha256: str
    licence: str

    @property
    def requirement(self) -> str:
        """The distribution and its version, as pip wants them."""
        return f"{self.distribution}=={self.version}"


def pip_settings() -> dict[str, str]:
    """Return pip's settings for `pip download`; they say where packages come from."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    ranks: dict[str, dict[str, str]] = {"global": {}, "download": {}, ":env:": {}}
    for line in done.stdout.splitlines():
        name, equals, value = line.partition("=")
        section, _, key = name.partition(".")
        if equals and section in ranks:
            ranks[section][key] = str(ast.literal_eval(value))
    return {**ranks["global"], **ranks["download"], **ranks[":env:"]}


def make_finder(settings: Mapping[str, str]) -> Any:
    """Make an `unearth.PackageFinder` with pip's settings; it finds files for any platform."""
    try:
        import unearth
        from unearth.fetchers import PyPIClient
    except ModuleNotFoundError:
        raise UserError(
            "expected the package unearth, which downloads without building, found none; "
            "`pip install unearth`"
        ) from None
    # unearth logs an error for each location without the package, though another one may have it.
    logging.getLogger("unearth").setLevel(logging.ERROR)
    offline = settings.get("no-index", "").lower() in ("1", "true", "yes", "on")
    indexes = [] if offline else settings.get("index-url", "").split()
    if not (offline or indexes):
        indexes = [source["url"] for source in unearth.PackageFinder().sources]
    indexes += [] if offline else settings.get("extra-index-url", "").split()
    links = settings.get("find-links", "").split()
    trusted = settings.get("trusted-host", "").split()
    options: dict[str, Any] = {"follow_redirects": True, "timeout": DOWNLOAD_TIMEOUT_S}
    if "cert" in settings:
        options["verify"] = ssl.create_default_context(cafile=settings["cert"])
    if "proxy" in settings:
        options["proxy"] = settings["proxy"]
    client: Any = PyPIClient(trusted_hosts=trusted, **options)
    finder = unearth.PackageFinder(
        session=client,
        index_urls=indexes,
        find_links=[link for link in links if "://" in link or pathlib.Path(link).exists()],
        ignore_compatibility=True,
    )
    if offline:  # without any place to look, unearth has taken PyPI
        finder.sources = [source for source in finder.sources if source["type"] != "index"]
    return finder


def download(wanted: Distribution, cache: pathlib.Path, finder: Any) -> pathlib.Path:
    """Get one distribution, from a directory that keeps them or from the index.

    Returns:
        The file; its checksum is the pinned one.

    Raises:
        UserError: the distribution cannot be downloaded, or has another checksum.
    """
    cached = cache / wanted.file
    if cached.is_file() and hashlib.sha256(cached.read_bytes()).hexdigest() == wanted.sha256:
        return cached
    try:
        data = _read_from_index(wanted, finder)
    except UserError:
        raise
    except Exception as error:  # The HTTP client's exceptions have no public common base.
        raise UserError(
            f"expected to download {wanted.requirement}, found: {type(error).__name__}: {error}; "
            f"check the network and pip's configuration, or put {wanted.file} into {cache}"
        ) from None
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 != wanted.sha256:
        raise UserError(
            f"expected {wanted.file} with sha256 {wanted.sha256}, found {sha256}; "
            "the package index offers another file under this name, do not use it"
        )
    with tempfile.NamedTemporaryFile(dir=cache, delete=False) as temporary:
        temporary.write(data)
    pathlib.Path(temporary.name).replace(cached)
    return cached


def _read_from_index(wanted: Distribution, finder: Any) -> bytes:
    """Download a distribution; return its bytes, whose checksum is not yet checked."""
    from packaging.requirements import Requirement

    for package in finder.find_matches(Requirement(wanted.requirement), allow_yanked=True):
        if package.link.filename == wanted.file:
            with finder.session.get_stream(package.link.normalized) as response:
                response.raise_for_status()
                return b"".join(response.iter_bytes())
    raise UserError(
        f"expected {wanted.file} on the package index, found no such file; "
        "check the network and pip's configuration (`pip config list`)"
    )


def download_all(
    wanted: Mapping[str, Distribution], cache: pathlib.Path
) -> dict[str, pathlib.Path]:
    """Get several distributions, by the names that messages call them; return their files by name.

    Raises:
        UserError: some cannot be had; a line for each of these was written to stderr.
    """
    cache.mkdir(parents=True, exist_ok=True)
    finder = make_finder(pip_settings())
    files = {}
    with concurrent.futures.ThreadPoolExecutor(_DOWNLOADS) as executor:
        futures = {
            name: executor.submit(download, distribution, cache, finder)
            for name, distribution in wanted.items()
        }
        for name, future in futures.items():
            try:
                files[name] = future.result()
            except UserError as error:
                print(f"error: {name}: {error}", file=sys.stderr)
    if len(files) < len(wanted):
        raise UserError(
            f"expected {len(wanted)} files, found {len(files)}; the others are named above: run "
            "this again"
        )
    return files


def default_cache(kind: str) -> pathlib.Path:
    """Return the directory where distributions of a kind ("sdists", "wheels") are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base, "tfrl", kind)
