import hashlib

import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.tables.public.random_features import FEATURES, MAX_RESPONSE, PER_FILTER, random_features

IMAGES = (np.random.default_rng(1).integers(0, 256, (3, 28, 28)) / 255).astype(np.float32)


def test_features_have_one_digest_on_every_machine():
    """Sums of products in float32 would depend on the processor, and with them the digest that identifies a
    comparison."""
    digest = hashlib.sha256(random_features(IMAGES).tobytes()).hexdigest()
    assert digest == "737b839920e908d6d33ba21b25e0106677abbb30c85b1f7ee7f7034ab8853140"


@pytest.mark.parametrize("num_features", [0, 10])
def test_every_filter_has_nine_features(num_features):
    assert random_features(IMAGES, 18).shape == (3, 18)
    with pytest.raises(InputError, match="multiple of 9"):
        random_features(IMAGES, num_features)


def test_an_image_has_the_same_features_whatever_is_beside_it():
    many = np.concatenate([np.zeros((300, 28, 28), np.float32), IMAGES[::-1]])
    assert np.array_equal(random_features(many)[-3:], random_features(IMAGES)[::-1])


@pytest.mark.parametrize(("side", "patch"), [(28, 5), (8, 3)])
def test_a_feature_is_the_mean_rectified_response_in_its_cell(side, patch):
    image = IMAGES[0, :side, :side]
    filters = np.random.default_rng(0).normal(size=(patch * patch, FEATURES // PER_FILTER))
    filters -= filters.mean(0)
    filters /= np.linalg.norm(filters, axis=0)
    places = side - patch + 1
    low, high = 0, round(places / 3)
    responses = [
        max(0.0, float(image[i : i + patch, j : j + patch].ravel() @ filters[:, 7]))
        for i in range(low, high)
        for j in range(low, high)
    ]
    # The first cell's eighth filter; filters are rounded to multiples of 1 / 1024.
    assert random_features(image[None])[0, 7] == pytest.approx(np.mean(responses) / MAX_RESPONSE, abs=5e-3)
