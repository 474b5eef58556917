"""Opacus: logistic regression by DP-SGD. Defaults are those of its tutorial on `make_private_with_epsilon`."""
# requires: opacus==1.6.0 torch==2.13.0 scikit-learn==1.9.1 pandas==3.1.1

import harness
import numpy as np
import torch
from encoding import encoded
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset


def train(
    private, public, test, epsilon, seed, optimizer="RMSprop", rate=1e-3, epochs=20, batch=512, clip=1.2
) -> np.ndarray:
    X, y, X_test = map(torch.tensor, encoded(private, public, test))
    torch.manual_seed(seed)
    model = torch.nn.Linear(X.shape[1], 1)
    stepper = getattr(torch.optim, optimizer)(model.parameters(), lr=rate)
    model, stepper, batches = PrivacyEngine().make_private_with_epsilon(
        module=model,
        optimizer=stepper,
        data_loader=DataLoader(TensorDataset(X, y), batch_size=batch),
        target_epsilon=epsilon,
        target_delta=1e-6,
        epochs=epochs,
        max_grad_norm=clip,
    )
    loss = torch.nn.BCEWithLogitsLoss()
    for _ in range(epochs):
        for features, labels in batches:
            stepper.zero_grad()
            loss(model(features).squeeze(1), labels).backward()
            stepper.step()
    return torch.sigmoid(model(X_test)).squeeze(1).detach().numpy()


if __name__ == "__main__":
    harness.main(train)
