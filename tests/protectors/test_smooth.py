"""Models that methods which solve for a minimiser take."""

import pytest

from l2p.base.errors import InputError
from l2p.models import find_model
from l2p.protectors.by_hand.smooth import check_smooth


@pytest.mark.parametrize("name", ["logistic", "svm"])
def test_smooth_losses_with_bounded_gradients_are_taken(name):
    check_smooth("objpert", find_model(name))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("hinge", "gradient is discontinuous"),
        ("square", "gradient is unbounded however short the rows are"),
        ("mlp", "is not a generalized linear model"),
    ],
)
def test_others_are_refused_for_what_they_lack(name, reason):
    with pytest.raises(InputError, match=reason):
        check_smooth("objpert", find_model(name))
