"""Checks an installed fedpact, in an environment with nothing else: its files, and the first program of the README.

make package
"""

import importlib.metadata
import importlib.resources
import pathlib
import subprocess
import sys
import tempfile

README = pathlib.Path(__file__).parents[1] / "README.md"
EXTRAS = {"encrypted", "flare", "flower", "frames", "images", "mlflow", "onnx", "tensorboard"}

package = importlib.resources.files("fedpact")
assert "site-packages" in str(package), f"{package} is not an installed fedpact"
assert (package / "py.typed").is_file(), "without py.typed nobody sees the types"
assert (package / "__init__.pyi").is_file(), "without the stub there are no names"
about = importlib.metadata.metadata("fedpact")
assert set(about.get_all("Provides-Extra") or ()) >= EXTRAS, "an extra that the documentation names is missing"
assert about["Classifier"] is not None

program = README.read_text().split("```python\n")[1].split("```")[0]
with tempfile.TemporaryDirectory() as folder:
    done = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", program], cwd=folder, capture_output=True, text=True, check=False
    )
assert done.returncode == 0, done.stderr
assert done.stdout.startswith("converged: "), done.stdout
print(f"fedpact {about['Version']} on Python {sys.version.split()[0]}: {done.stdout.splitlines()[0]}")
