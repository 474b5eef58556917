"""`l2p account`: price a finished run again."""

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from l2p.privacy.card import Card

#: dp-accounting discretises losses and rounds up; it agrees with the exact Gaussian curve to 1e-8.
TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True)
class Account:
    """Price the events on a run's card again in float64; exit with 1 if they cost more than the card says."""

    card: Path
    """A run's card.json."""
    verify: bool = False
    """Also compose them with dp-accounting."""

    def run(self) -> int:
        """Print what was spent, and compare."""
        from l2p.privacy import accountants
        from l2p.privacy.card import Card

        card = Card.from_json(self.card)
        budget, answered = card.budget, card.answered()
        spent = accountants.spent(card.accountant, budget, answered)
        limit = accountants.limit(card.accountant, budget)
        print(f"accountant   {card.accountant}, {len(answered)} queries")
        print(f"spent        {spent:.9g} of {limit:.9g} ({spent / limit:.4%})")
        holds = spent <= limit
        if holds:
            certified = accountants.certify(card.accountant, budget, answered, card.adaptive_noise)
            print(f"epsilon      {certified:.9g} certified at delta {card.delta:g}, target {card.epsilon:g}")
            holds = certified <= card.epsilon_certified * (1 + TOLERANCE) and card.epsilon_certified <= card.epsilon
        if self.verify:
            independent = _independent_epsilon(card)
            print(f"dp-accounting: epsilon {independent:.9g} for the same events, had they been fixed in advance")
            holds = holds and independent <= card.epsilon * (1 + TOLERANCE)
        print("the card holds" if holds else "THE CARD DOES NOT HOLD: its events cost more than it says")
        return 0 if holds else 1


def _independent_epsilon(card: "Card") -> float:
    """Epsilon at the card's delta of its events, by dp-accounting."""
    from dp_accounting import dp_event, pld, rdp

    from l2p.privacy.convert import planned_order

    if not card.events:
        return 0.0
    if card.accountant == "gdp":
        # Gaussian mechanisms compose to one Gaussian mechanism: the squares of their mu add up.
        mu = math.sqrt(sum(count / multiplier**2 for _, multiplier, count in card.events))
        accountant = pld.PLDAccountant()
        accountant.compose(dp_event.GaussianDpEvent(1 / mu))
        return accountant.get_epsilon(card.delta)
    best = planned_order(card.epsilon, card.delta) - 1
    accountant = rdp.RdpAccountant(orders=[1 + best * 2 ** (k / 4) for k in range(-8, 9)])
    for mechanism, multiplier, count in card.events:
        # Selections by their zCDP: bounded range epsilon gives epsilon^2 / 8, pure epsilon gives epsilon^2 / 2.
        event = {
            "gaussian": dp_event.GaussianDpEvent(multiplier),
            "gumbel": dp_event.ZCDpEvent(1 / (8 * multiplier**2)),
            "exponential": dp_event.ZCDpEvent(1 / (2 * multiplier**2)),
        }[mechanism]
        accountant.compose(event, count)
    return accountant.get_epsilon(card.delta)
