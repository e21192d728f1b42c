"""A zoo of models to experiment with, as frameworks export them: `make("bert-base")`.

Weights are random, drawn so that activations neither vanish nor explode. The same name, seed, batch
and opset make the same model on every machine. No model is simplified in advance: batch
normalisations follow their convolutions, query, key and value have a matrix product each, RepVGG
has the branches that it is trained with, and LoRA has its adapters.

  bert-base, bert-mini, bert-tiny   encoders for 128 tokens (Devlin et al., 2019; Turc et al., 2019)
  lora-transformer                  rank-16 adapters beside every matrix (Hu et al., 2021)
  resnet-18, resnet-50, resnext-50  (He et al., 2016; Xie et al., 2017)
  inception-v3                      (Szegedy et al., 2016)
  squeezenet-1.1                    (Iandola et al., 2016)
  repvgg-a0                         (Ding et al., 2021)
  nasrnn                            five steps of the cell of Zoph and Le (2017)

There are also families of small models, drawn at random: `make("transformers:7")`; see `families`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import onnx

from environments.errors import UserError
from environments.tensor_graphs.models import convolutional, families, recurrent, transformers
from environments.tensor_graphs.models.builder import Batch, Builder

_MODELS: Mapping[str, Callable[[Builder], onnx.ModelProto]] = {
    "bert-base": functools.partial(transformers.bert, layers=12, hidden=768, heads=12),
    "bert-mini": functools.partial(transformers.bert, layers=4, hidden=256, heads=4),
    "bert-tiny": functools.partial(transformers.bert, layers=2, hidden=128, heads=2),
    "inception-v3": convolutional.inception_v3,
    "lora-transformer": functools.partial(
        transformers.lora, layers=6, hidden=512, heads=8, rank=16
    ),
    "nasrnn": functools.partial(recurrent.nasrnn, steps=5, hidden=512),
    "repvgg-a0": functools.partial(
        convolutional.repvgg, blocks=(2, 4, 14, 1), channels=(48, 96, 192, 1280)
    ),
    "resnet-18": functools.partial(convolutional.resnet, blocks=(2, 2, 2, 2)),
    "resnet-50": functools.partial(convolutional.resnet, blocks=(3, 4, 6, 3), bottleneck=(1, 64)),
    "resnext-50": functools.partial(convolutional.resnet, blocks=(3, 4, 6, 3), bottleneck=(32, 4)),
    "squeezenet-1.1": convolutional.squeezenet,
}

NAMES = tuple(_MODELS)

_OPSET = 14
KNOWN = (
    f"{', '.join(NAMES)}, or a member of a family, such as {families.FAMILIES[0]}:7 "
    f"(families: {', '.join(families.FAMILIES)})"
)
"""What a message lists where it expected the name of a built-in model."""


def is_built_in(name: str) -> bool:
    """Whether `make` makes a model of this name: one of NAMES, or a member of a family."""
    return name in _MODELS or families.is_member(name)


def make(name: str, seed: int = 0, batch: Batch = 1, opset: int | None = None) -> onnx.ModelProto:
    """Make a model with random weights.

    Args:
      name: one of NAMES, or FAMILY:NUMBER.
      seed: seed of the random weights.
      batch: number of examples, or a name such as "N" if it is to be known only when the model
        runs.
      opset: version of ONNX's operators, at least 13. From 17 on, a layer normalisation is one
        operator; below, exporters write nine. By default 14; families draw it.

    Raises:
      UserError: there is no model of this name.
    """
    if name in _MODELS:
        return _MODELS[name](Builder(name, seed, batch, opset or _OPSET))
    if families.is_member(name):
        return families.make(name, seed, batch, opset)
    raise UserError(f"no model {name!r}; there are {KNOWN}")
