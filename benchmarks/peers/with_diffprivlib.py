"""diffprivlib: logistic regression by objective perturbation, at a pure epsilon (delta 0).

Its 0.6.6 imports names that scikit-learn has dropped since, so a plain `pip install diffprivlib` does not import.
"""
# requires: diffprivlib==0.6.6 scikit-learn==1.7.2 pandas==3.1.1

import harness
import numpy as np
from diffprivlib.models import LogisticRegression
from encoding import encoded


def train(private, public, test, epsilon, seed, C=1.0, norm=14**0.5) -> np.ndarray:
    # Left out, `data_norm` is read off the private rows, with a PrivacyLeakWarning. Longer rows are shortened to it.
    X, y, X_test = encoded(private, public, test)
    model = LogisticRegression(epsilon=epsilon, data_norm=norm, C=C, random_state=seed).fit(X, y)
    return model.predict_proba(X_test)[:, 1]


if __name__ == "__main__":
    harness.main(train)
