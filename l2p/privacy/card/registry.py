"""A card as a draft entry of the Differential Privacy Deployments Registry, in YAML.

Its fields are those of the registry's template (https://github.com/opendp/deployments-registry-data). What no card
knows, such as the curator and the intended use, is left empty for whoever submits it.
"""

from typing import TYPE_CHECKING, Any

import yaml

from l2p.privacy.card import text as wording
from l2p.privacy.card.statements import STATED, UNCHECKED, on_card

if TYPE_CHECKING:
    from l2p.privacy.card.card import Card

_HEAD = """\
# A draft entry for the Differential Privacy Deployments Registry (github.com/opendp/deployments-registry-data), made
# from card.json, which is what counts. Fill in what is empty before you submit it.
"""


def to_yaml(card: "Card") -> str:
    """The draft entry, below two lines on what it is."""
    return _HEAD + yaml.safe_dump(entry(card), sort_keys=False, allow_unicode=True, width=100)


def entry(card: "Card") -> dict[str, Any]:
    """The draft entry as the registry's template has it."""
    return {
        "url_slug": "",
        "deployment": {
            "basic": _basic(card),
            "dp_variant": {
                "variant_name": "Approximate DP" if card.delta else "Pure DP",
                "data_domain": f"Tables of {card.num_rows} rows, from which {card.num_features} features are encoded.",
                "unprotected_quantities": " ".join(card.not_private),
            },
            "privacy_loss": _privacy_loss(card),
            "deployment_model": {
                "model_name": "Central",
                "model_name_details": "",
                "trust_assumptions": _sentence(wording.trust(card)),
                "actors": "",
                "release_type": "One release",
                "release_type_details": " ".join([_sentence(wording.composition(card)), *wording.earlier_runs(card)]),
                "data_source_type": "Static",
                "access_type": "Non-interactive",
            },
            "implementation": _implementation(card),
            "administrative": {"evidence_sources": {}, "status": "Draft", "registry_authors": [], "tier": 3},
        },
    }


def _basic(card: "Card") -> dict[str, Any]:
    return {
        "name": wording.subject(card).rstrip("."),
        "data_curators": [],
        "description": f"{wording.subject(card)} Trained by {card.protector['name']}. {card.learned}",
        "intended_use": "",
        "data_product_type": "Machine learning model",
        "data_product_region": "",
        "data_product_sector": "",
        "publication_date": card.created[:10],
    }


def _privacy_loss(card: "Card") -> dict[str, Any]:
    neighbours, _, several = wording.meaning(card)
    return {
        "privacy_unit": wording.grounds(card)["Protects"],
        "privacy_unit_details": f"{neighbours} {several}",
        "number_of_privacy_units": 1,
        "privacy_parameters": {"epsilon": card.epsilon, "delta": card.delta},
        "privacy_parameters_details": _sentence(f"certified: {wording.grounds(card)['Certified']}"),
    }


def _implementation(card: "Card") -> dict[str, Any]:
    stated = on_card(card.statements)
    software = ", ".join(f"{name} {version}" for name, version in card.versions.items())
    return {
        "preprocessing_and_hyperparameter_tuning": (
            "What was public of features and their encoding is named with the unprotected quantities. Protector: "
            f"{wording.provenance(card)['Protector']}."
        ),
        "mechanisms": " ".join(
            [*(f"{wording.mechanism(kind)}." for kind in card.mechanisms), f"{card.float_mode}. {software}."]
        ),
        "composition": card.theorem,
        "post_processing": "Everything after the noised answers: the protector's updates, and all predictions.",
        "justification": (card.statements or {}).get("justification", ""),
        "utility": card.learned,
        "additional_information": f"{STATED}, {UNCHECKED}: contact: {stated['Contact']}. Audit: {stated['Audit']}.",
    }


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
