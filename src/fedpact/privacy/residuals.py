"""What passive parties get of the residuals ν: as they are, or encrypted."""

import dataclasses

from fedpact.privacy import ckks


@dataclasses.dataclass(frozen=True)
class EncryptedResiduals:
    """Passive parties get Enc(ν) instead of ν: each computes its own gradient on ciphertext and learns nothing else.

    The server holds the CKKS key and decrypts gradients that are masked by their parties, so it learns nothing of them. Needs
    tenseal: pip install 'fedpact[encrypted]'. Noise is fresh in every run, so runs agree to about 1e-8, not to the bit.
    """

    def __post_init__(self) -> None:
        ckks.seal()
