"""Keys and masks: X25519 key agreement, HKDF-SHA256, ChaCha20 as generator, ChaCha20-Poly1305 for shares.

All of them come from the package ``cryptography``. Every key is derived for one session and one pair of clients.
"""

from __future__ import annotations

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedstein.federation.secure_sum.fixed_point import Words

KEY_BYTES = 32
SEAL_BYTES = 16  # the number of bytes by which a sealed text is longer than the text


class Forged(ValueError):
    """A sealed text that was changed, or that is not for this reader."""


def new_key() -> bytes:
    """Make a private key."""
    return X25519PrivateKey.generate().private_bytes_raw()


def public_of(private: bytes) -> bytes:
    """The public key of a private key."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, public: bytes, purpose: str, session: str, one: int, other: int) -> bytes:
    """Derive the key that two clients share, for one purpose in one session.

    Args:
        private: The client's own private key.
        public: The other client's public key.
        purpose: What the key is for.
        session: The session.
        one: The id of one of the two.
        other: The id of the other; both clients derive the same key.

    Returns:
        32 bytes.

    Raises:
        ValueError: The public key is invalid.
    """
    shared = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    first, second = sorted((one, other))
    return derive(shared, f"{purpose} {session} {first} {second}")


def derive(secret: bytes, about: str) -> bytes:
    """Derive a key of 32 bytes for one use from a secret."""
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=f"fedstein secure sum 1: {about}".encode()).derive(secret)


def mask(key: bytes, count: int) -> Words:
    """The key stream of ChaCha20 as ``count`` fixed-point numbers. A key makes one mask only, so the nonce is 0."""
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(16 * count))
    return np.frombuffer(stream, "<u8").astype(np.uint64).reshape(count, 2)


def seal(key: bytes, text: bytes, about: str) -> bytes:
    """Encrypt and authenticate a text. A key seals one text only, so the nonce is 0."""
    return ChaCha20Poly1305(key).encrypt(bytes(12), text, about.encode())


def unseal(key: bytes, sealed: bytes, about: str) -> bytes:
    """Read what ``seal`` wrote.

    Raises:
        Forged: The text was changed, or sealed by another client or for another purpose.
    """
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), sealed, about.encode())
    except InvalidTag:
        raise Forged("a share was changed on its way, or is not for this client") from None
