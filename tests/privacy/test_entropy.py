"""The noise of a release comes from a cryptographic generator with a new key from the operating system each time."""

import copy
import os
import pickle
import re
import warnings

import numpy as np
import pytest
from scipy import stats

from l2p.privacy.cost.sampling import FixedSize, PermutationEpochs, Poisson
from l2p.task import keystream
from l2p.task.entropy import Entropy
from l2p.task.noise import BatchDraw, Draw

#: One draw of each kind that a release makes.
PLAN = [
    Draw("gaussian", 4),
    Draw("gumbel", 4),
    Draw("exponential", 4),
    BatchDraw(Poisson(0.3), 20),
    BatchDraw(FixedSize(5, 20), 20),
    BatchDraw(PermutationEpochs(5, 20), 20),
]

#: RFC 8439, appendix A.1, test vectors 1 and 2: blocks 0 and 1 of ChaCha20's keystream for the key of 32 zero bytes
#: and the nonce of zeros. The other key's blocks are OpenSSL 4.0.3's, through `cryptography` 50.0.2.
KEYSTREAMS = {
    bytes(32): "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
    "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
    bytes(range(32)): "39fd2b7dd9c5196a8dbd0377b8dc4a498a35d86fbcde6accb2cc7d4cd8ea2492"
    "2b23cce7a26023ab3f0eef693ac87f64258235eab1f7a32dc22762a0485b410c"
    "18b84231ade6a6d113615c61af434e27f8b1f3f5e1ad5b5cecf8fc122a35755c"
    "7208086dd1ee3c5d9d815824640e003c9ba0f65ede5d59ce0d2a4a7f31955acd",
}


@pytest.mark.parametrize("key", KEYSTREAMS, ids=["RFC 8439", "OpenSSL"])
@pytest.mark.parametrize("simd", [True, False])
def test_a_release_draws_from_the_published_keystream_of_256_bits_of_the_operating_system(key, simd, monkeypatch):
    sizes = []
    monkeypatch.setattr(keystream.secrets, "token_bytes", lambda size: sizes.append(size) or key)
    bits = Entropy()._generator.bit_generator
    assert sizes == [32]
    assert bits.state["state"]["rounds"] == 20
    bits.use_simd = simd and bits.use_simd
    assert np.asarray(bits.random_raw(16), "<u8").tobytes().hex() == KEYSTREAMS[key]


def test_everything_a_release_draws_comes_from_that_stream(monkeypatch):
    """Draws of every kind consume words of the stream, and Gumbel noise is -log(-log) of uniforms from it."""
    monkeypatch.setattr(keystream.secrets, "token_bytes", lambda size: bytes(range(size)))
    entropy = Entropy()
    words = entropy._generator.bit_generator
    for draw in PLAN:
        before = int(words.state["state"]["ctr"][0])
        drawn = entropy.draw([draw], 2)
        assert int(words.state["state"]["ctr"][0]) > before
        assert not np.array_equal(drawn[0][0], drawn[0][1])
    uniforms = (np.frombuffer(bytes.fromhex(KEYSTREAMS[bytes(range(32))]), "<u8") >> 11) / 2.0**53
    (bits,) = Entropy().draw([Draw("gumbel", 16)], 1)
    np.testing.assert_allclose(bits.view(np.float64)[0, :, 0], -np.log(-np.log1p(-uniforms)))


@pytest.mark.parametrize("distribution", ["gaussian", "gumbel", "exponential"])
def test_noise_has_its_distribution_and_no_memory(distribution):
    (bits,) = Entropy(1).draw([Draw(distribution, 200_000)], 1)
    values = bits.view(np.float64)[0, :, 0]
    law = {"gaussian": stats.norm, "gumbel": stats.gumbel_r, "exponential": stats.expon}[distribution]
    assert stats.kstest(values, law.cdf).pvalue > 1e-6
    assert stats.kstest(1.01 * values + 0.01, law.cdf).pvalue < 1e-6
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 5 / len(values) ** 0.5


def test_a_seed_reproduces_every_draw_and_another_one_none():
    first, again, different = (Entropy(seed).draw(PLAN, 3) for seed in (5, 5, 6))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(first, different, strict=True))
    with pytest.raises(ValueError, match=re.escape("[0,2**256)")):
        Entropy(2**256)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("number", [None, 1], ids=["a number of its own", "its parent's number"])
def test_a_fork_refuses_to_draw_where_its_parent_goes_on(seed, number, monkeypatch):
    if number is not None:  # as where each container numbers its processes from 1
        monkeypatch.setattr(os, "getpid", lambda: number)
    entropy = Entropy(seed)
    entropy.draw(PLAN, 1)
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX's, about threads: the child uses none
        child = os.fork()
    if child == 0:
        try:
            entropy.draw(PLAN, 1)
            message = "it drew"
        except RuntimeError as error:
            message = f"{error} {len(Entropy().draw(PLAN, 1))}"
        os.write(writer, message.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as pipe:
        message = pipe.read()
    assert re.search(
        r"before the process was forked.*make a new Entropy\(\) after the fork, in each process\. 6$", message
    )
    entropy.draw(PLAN, 1)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps], ids=lambda call: call.__name__)
@pytest.mark.parametrize("seed", [None, 3])
def test_no_copy_is_made(duplicate, seed):
    with pytest.raises(TypeError, match=r"would draw the same noise again.*make a new Entropy\(\)"):
        duplicate(Entropy(seed))
