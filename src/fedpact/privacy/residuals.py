"""Encryption of the residuals ν that passive parties receive."""

import dataclasses

from fedpact.privacy import ckks


@dataclasses.dataclass(frozen=True)
class EncryptedResiduals:
    """Homomorphic encryption of residuals, `fp.solve(..., fp.FairVFL(), privacy=fp.EncryptedResiduals())`; also for `fp.FedBCD`.

    The residuals ν are the derivatives of the Lagrangian by the combined embedding of each row, and reveal labels. Passive
    parties receive them encrypted by CKKS and compute their gradients on the ciphertext, so they learn their own gradients and
    nothing else of ν. The server holds the key and decrypts gradients that the parties have masked, so it learns nothing of them.

    There are no options. Encryption noise is fresh in every run, so that two runs agree to about 1e-8 and not to the bit. Raises
    ImportError where tenseal is missing (the extra `encrypted`).
    """

    def __post_init__(self) -> None:
        ckks.seal()
