"""The many names of train, dev and test."""

SPELLINGS = {
    "train": ("train", "tr", "training", "trn"),
    "dev": ("dev", "validation", "valid", "val", "va", "development", "eval"),
    "test": ("test", "te", "testing", "tst"),
}

PART_OF = {spelling: part for part, names in SPELLINGS.items() for spelling in names}
