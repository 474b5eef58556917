"""Images to a table of features, and names of classes to encodings, with frozen public networks.

    python -m l2p.tables.vision IMAGES --out features.parquet --backbone resnet50

IMAGES has one folder per class. The table has a column per feature, f0, f1 and so on, each row divided by its own
length, and a column `label`. Needs the extra `vision`. The network must not have been trained on private rows: its
weights are public in every guarantee.
"""

import dataclasses
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from l2p.base.errors import InputError
from l2p.tables.vision.starts import unit_rows

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")

#: Images of a batch to features f32[b, d].
Encoder = Callable[[Sequence[Any]], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Features:
    """Turn a folder of images into a table of features."""

    images: tyro.conf.Positional[Path]
    """Folder with one folder of images per class."""
    out: Path
    """Parquet file to write."""
    backbone: str = "resnet50"
    """A ResNet of torchvision by name, or `clip:` and a CLIP model's folder or name, such as
    clip:openai/clip-vit-base-patch32."""
    weights: Path | None = None
    """The ResNet's weights, .pt, .pth or .safetensors; default torchvision's own, which it downloads."""
    batch: int = 64
    """Images at a time."""

    def run(self) -> int:
        """Write the table; 0 as exit code."""
        files = image_files(self.images)
        if self.out.exists():
            raise InputError(f"{self.out} exists, and would be lost; name another file, or remove it.")
        encoder = encoder_of(self.backbone, self.weights)
        x = np.concatenate(list(_encoded([path for path, _ in files], encoder, self.batch)))
        write_table(self.out, x, [label for _, label in files])
        # They hold for any image: rows have length 1, and what comes out of a ReLU is never negative.
        low = -1 if self.backbone.startswith("clip:") else 0
        print(
            f"Wrote {len(x)} rows of {x.shape[1]} features to {self.out}; the bounds of every feature are {low} and 1."
        )
        return 0


def image_files(folder: Path) -> list[tuple[Path, str]]:
    """Images and their classes, the names of their folders, in order.

    Raises:
      InputError: no such folder, or fewer than two classes with images.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; give one with a folder of images per class.")
    files = [
        (path, child.name)
        for child in sorted(folder.iterdir())
        if child.is_dir()
        for path in sorted(child.iterdir())
        if path.suffix.lower() in SUFFIXES
    ]
    if len({label for _, label in files}) < 2:
        raise InputError(
            f"{folder} has images ({', '.join(SUFFIXES)}) of fewer than two classes, so nothing is told apart; put "
            "the images of each class into a folder of its own."
        )
    return files


def encoder_of(backbone: str, weights: Path | None = None) -> Encoder:
    """The frozen network of that name.

    Raises:
      InputError: a package is missing, or there is no such network or file of weights.
    """
    if backbone.startswith("clip:"):
        if weights is not None:
            raise InputError("a CLIP model's folder holds its weights; leave out --weights.")
        return clip_images(backbone.removeprefix("clip:"))
    return resnet(backbone, weights)


def resnet(name: str, weights: Path | None) -> Encoder:
    """The last layer of a torchvision ResNet before its classes, after a ReLU and so never negative."""
    torch, torchvision = _package("torch"), _package("torchvision")
    residual = ("resnet", "resnext", "wide_resnet")
    if not name.startswith(residual) or name not in torchvision.models.list_models():
        raise InputError(
            f"{name!r} is no residual network of torchvision, whose last layer is known here; name one such as "
            "resnet50, or clip: and a CLIP model."
        )
    default_weights = torchvision.models.get_model_weights(name).DEFAULT
    network = torchvision.models.get_model(name, weights=default_weights if weights is None else None)
    if weights is not None:
        _load(network, weights)
    network.fc = torch.nn.Identity()
    network.eval()
    prepare = default_weights.transforms()

    def encode(images: Sequence[Any]) -> np.ndarray:
        with torch.inference_mode():
            return network(torch.stack([prepare(image) for image in images])).numpy()

    return encode


def _load(network: Any, path: Path) -> None:
    """Put a file's weights into the network; nothing in the file is executed."""
    broken = _package("safetensors").SafetensorError
    try:
        if path.suffix == ".safetensors":
            state = _package("safetensors.torch").load_file(path)
        else:
            state = _package("torch").load(path, map_location="cpu", weights_only=True)
        network.load_state_dict(state)
    except (OSError, EOFError, RuntimeError, TypeError, pickle.UnpicklingError, broken) as error:
        raise InputError(
            f"{path} holds no weights that fit this network ({type(error).__name__}); name the file of its state_dict."
        ) from error


def clip_images(model: str) -> Encoder:
    """A CLIP model's image encoder, from a folder or a hub's name."""
    torch, transformers = _package("torch"), _package("transformers")
    network = _pretrained(transformers.CLIPModel, model).eval()
    processor = _pretrained(transformers.CLIPImageProcessor, model)

    def encode(images: Sequence[Any]) -> np.ndarray:
        with torch.inference_mode():
            inputs = processor(images=list(images), return_tensors="pt")
            return network.visual_projection(network.vision_model(**inputs).pooler_output).numpy()

    return encode


def encode_names(names: Sequence[str], model: str, template: str = "a photo of a {}.") -> np.ndarray:
    """Encodings f32[K, d] of the names of classes by a CLIP text encoder, for `l2p.tables.vision.starts.from_names`.

    Args:
      names: one per class, in their order.
      model: a CLIP model's folder or name, the one that encoded the images.
      template: what `{}` is replaced in by each name.

    Raises:
      InputError: a package is missing, there is no such model, or the template has no place for a name.
    """
    if "{}" not in template:
        raise InputError(f"the template {template!r} has no {{}} to put a name in; add it.")
    torch, transformers = _package("torch"), _package("transformers")
    network = _pretrained(transformers.CLIPModel, model).eval()
    tokenizer = _pretrained(transformers.CLIPTokenizer, model)
    with torch.inference_mode():
        inputs = tokenizer([template.replace("{}", name) for name in names], padding=True, return_tensors="pt")
        encoded = network.text_projection(network.text_model(**inputs).pooler_output)
    return encoded.numpy()


def write_table(path: Path, x: np.ndarray, labels: Sequence[str]) -> None:
    """Rows f[n, d], each divided by its own length, and their classes as a Parquet file."""
    arrow, parquet = _package("pyarrow"), _package("pyarrow.parquet")
    x = unit_rows(x).astype(np.float32)
    columns = {f"f{index}": x[:, index] for index in range(x.shape[1])}
    parquet.write_table(arrow.table(columns | {"label": list(labels)}), path)


def _encoded(paths: Sequence[Path], encoder: Encoder, batch: int) -> Iterator[np.ndarray]:
    image = _package("PIL.Image")
    for first in range(0, len(paths), batch):
        opened = []
        for path in paths[first : first + batch]:
            try:
                opened.append(image.open(path).convert("RGB"))
            except (OSError, SyntaxError) as error:
                raise InputError(f"{path} is no image that can be read; repair or remove it.") from error
        yield encoder(opened)


def _pretrained(cls: Any, model: str) -> Any:
    try:
        return cls.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{model} is no CLIP model in a folder, nor one that a hub gives from here ({type(error).__name__}); "
            "download it, and name its folder."
        ) from error


def _package(name: str) -> Any:
    """A package of the extra `vision`, imported where it is used."""
    import importlib

    # Without it, transformers' tokenizers warn whenever a process forks.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            f"encoding images and names needs {name.split('.')[0]}, which is not installed; "
            "pip install 'l2p-jax[vision]'."
        ) from error


def main() -> int:
    """`python -m l2p.tables.vision`; exit codes as those of `l2p`."""
    arguments = tyro.cli(Features, prog="python -m l2p.tables.vision")
    try:
        return arguments.run()
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
