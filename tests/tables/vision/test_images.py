"""Images to features and names to encodings, on networks with random weights that are made here."""

import importlib.util
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from l2p.base.errors import InputError
from l2p.tables.vision import images as vision

MISSING = [name for name in ("torch", "torchvision", "transformers") if importlib.util.find_spec(name) is None]
needs_networks = pytest.mark.skipif(
    bool(MISSING), reason=f"{', '.join(MISSING)} not installed; pip install 'l2p-jax[vision]' to run it"
)


@pytest.fixture
def images(tmp_path):
    """Five small images of two classes, and a file that is none."""
    folder, random = tmp_path / "images", np.random.default_rng(0)
    for label, count in (("cat", 2), ("dog", 3)):
        (folder / label).mkdir(parents=True)
        for index in range(count):
            pixels = random.integers(0, 256, (40, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{index}.png")
    (folder / "dog" / "notes.txt").write_text("no image")
    (folder / "readme.md").write_text("no class")
    return folder


def mean_colour(batch):
    return np.stack([np.asarray(image, np.float32).mean((0, 1)) for image in batch])


def test_a_folder_of_classes_becomes_rows_of_length_one(images, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(vision, "encoder_of", lambda *_: mean_colour)
    out = tmp_path / "features.parquet"
    assert vision.Features(images, out, batch=2).run() == 0
    table = pq.read_table(out)
    assert table.column_names == ["f0", "f1", "f2", "label"]
    assert table["label"].to_pylist() == ["cat", "cat", "dog", "dog", "dog"]
    x = np.stack([table[f"f{index}"].to_numpy() for index in range(3)], 1)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1.0, rtol=1e-6)
    third = np.asarray(Image.open(images / "dog" / "0.png"), float).mean((0, 1))
    np.testing.assert_allclose(x[2], third / np.linalg.norm(third), rtol=1e-5)
    assert "bounds of every feature are 0 and 1" in capsys.readouterr().out


def test_a_file_that_exists_is_not_overwritten(images, tmp_path):
    (tmp_path / "out.parquet").write_text("kept")
    with pytest.raises(InputError, match="would be lost"):
        vision.Features(images, tmp_path / "out.parquet").run()
    assert (tmp_path / "out.parquet").read_text() == "kept"


def test_folders_without_two_classes_are_refused(images, tmp_path):
    with pytest.raises(InputError, match="is no folder"):
        vision.image_files(tmp_path / "gone")
    with pytest.raises(InputError, match="fewer than two classes"):
        vision.image_files(images / "cat")


def test_a_broken_image_is_named(images, tmp_path, monkeypatch):
    monkeypatch.setattr(vision, "encoder_of", lambda *_: mean_colour)
    (images / "cat" / "broken.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"broken\.png is no image"):
        vision.Features(images, tmp_path / "out.parquet").run()


def test_a_missing_package_is_named_with_its_extra():
    with pytest.raises(InputError, match=r"l2p-jax\[vision\]"):
        vision._package("no_such_package_anywhere")


def test_weights_beside_a_clip_model_are_refused(tmp_path):
    with pytest.raises(InputError, match="leave out --weights"):
        vision.encoder_of("clip:somewhere", tmp_path / "weights.pt")


def test_a_template_without_a_place_for_the_name_is_refused():
    with pytest.raises(InputError, match="to put a name in"):
        vision.encode_names(["cat"], "somewhere", template="a photo")


@needs_networks
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_resnet_gives_its_last_layer_from_weights_in_a_file(images, tmp_path, suffix):
    import torch
    import torchvision
    from safetensors.torch import save_file

    torch.manual_seed(0)
    network = torchvision.models.resnet18(weights=None)
    path = tmp_path / f"weights{suffix}"
    if suffix == ".pt":
        torch.save(network.state_dict(), path)
    else:
        save_file(network.state_dict(), path)
    out = tmp_path / "features.parquet"
    assert vision.Features(images, out, "resnet18", path, batch=2).run() == 0
    table = pq.read_table(out)
    assert table.num_columns == 512 + 1
    # The same by hand: all layers but the last, on one image.
    network.eval()
    body = torch.nn.Sequential(*list(network.children())[:-1])
    prepare = torchvision.models.ResNet18_Weights.DEFAULT.transforms()
    image = prepare(Image.open(images / "cat" / "1.png").convert("RGB"))
    with torch.inference_mode():
        expected = body(image[None]).ravel().numpy()
    features = np.array([table[f"f{index}"][1].as_py() for index in range(512)])
    np.testing.assert_allclose(features, expected / np.linalg.norm(expected), atol=1e-5)


@needs_networks
def test_backbones_that_are_unknown_and_weights_that_are_not_weights_are_refused(tmp_path):
    with pytest.raises(InputError, match="no residual network"):
        vision.encoder_of("vgg16")
    for name in ("weights.pt", "weights.safetensors"):
        (tmp_path / name).write_bytes(b"nothing")
        with pytest.raises(InputError, match="no weights that fit"):
            vision.encoder_of("resnet18", tmp_path / name)
    with pytest.raises(InputError, match="no CLIP model"):
        vision.encoder_of(f"clip:{tmp_path}")


@pytest.fixture
def clip(tmp_path):
    """The folder of a CLIP model with random weights, six features and a tokenizer of single letters."""
    import torch
    import transformers

    torch.manual_seed(0)
    folder, letters = tmp_path / "clip", "abcdefghijklmnopqrstuvwxyz."
    folder.mkdir()
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = small | {"vocab_size": len(tokens), "bos_token_id": len(tokens) - 2, "eos_token_id": len(tokens) - 1}
    image = small | {"image_size": 32, "patch_size": 16}
    config = transformers.CLIPConfig(text_config=text, vision_config=image, projection_dim=6)
    transformers.CLIPModel(config).save_pretrained(folder)
    transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(
        folder
    )
    transformers.CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt")).save_pretrained(folder)
    return folder


@needs_networks
def test_a_clip_model_encodes_images_and_names_into_the_same_features(images, tmp_path, clip):
    out = tmp_path / "features.parquet"
    assert vision.Features(images, out, f"clip:{clip}").run() == 0
    assert pq.read_table(out).num_columns == 6 + 1
    encodings = vision.encode_names(["cat", "dog"], str(clip))
    assert encodings.shape == (2, 6)
    assert np.abs(encodings[0] - encodings[1]).max() > 1e-4
    # One name at a time gives the same, so padding does not count.
    np.testing.assert_allclose(vision.encode_names(["dog"], str(clip)), encodings[1:], atol=1e-5)
