"""The science: tensors in, frozen values out. No disk, no network, no screen."""
