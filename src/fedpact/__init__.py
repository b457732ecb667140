"""fedpact: models trained across parties who cannot share their data, under constraints, with a certificate."""

import lazy_loader

from fedpact.__about__ import VERSION as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]
