"""The four data sets of the paper: where they come from, what their files look like, what is used of them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import sha256

SPLITS = ("train", "test")

Counts = tuple[int, int]
"""Of training and of test images."""


@dataclass(frozen=True)
class Spec:
    """One data set. Its files have the schema of `hub`, its public name at the Hugging Face hub.

    `labels` are the columns with what is to be said of an image: one with its class, or one for each attribute.
    `shape` is channels, height and width. A cropped image is cut to its central square and resized; any other must
    have this size already. `official` counts the images of the official split, `most` those that the paper used.
    """

    name: str
    hub: str
    image: str
    labels: tuple[str, ...]
    classes: int
    shape: tuple[int, int, int]
    official: Counts
    most: Counts
    cropped: bool = False
    strata: tuple[str, ...] = ()

    @property
    def attributes(self) -> bool:
        """Whether an image has several attributes instead of one class."""
        return len(self.labels) > 1

    @property
    def files(self) -> str:
        """The files of a folder, in words."""
        return " and ".join(f"{self.name}/{split}.parquet" for split in SPLITS)

    def digest(self, **content: object) -> str:
        """What tells one collection of this data set from another, and one way of reading it from another."""
        document = {"data": asdict(self), "content": content}
        return sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


ATTRIBUTES = (
    "5_o_Clock_Shadow",
    "Arched_Eyebrows",
    "Attractive",
    "Bags_Under_Eyes",
    "Bald",
    "Bangs",
    "Big_Lips",
    "Big_Nose",
    "Black_Hair",
    "Blond_Hair",
    "Blurry",
    "Brown_Hair",
    "Bushy_Eyebrows",
    "Chubby",
    "Double_Chin",
    "Eyeglasses",
    "Goatee",
    "Gray_Hair",
    "Heavy_Makeup",
    "High_Cheekbones",
    "Male",
    "Mouth_Slightly_Open",
    "Mustache",
    "Narrow_Eyes",
    "No_Beard",
    "Oval_Face",
    "Pale_Skin",
    "Pointy_Nose",
    "Receding_Hairline",
    "Rosy_Cheeks",
    "Sideburns",
    "Smiling",
    "Straight_Hair",
    "Wavy_Hair",
    "Wearing_Earrings",
    "Wearing_Hat",
    "Wearing_Lipstick",
    "Wearing_Necklace",
    "Wearing_Necktie",
    "Young",
)
"""Of CelebA, in the official order."""

SPECS = {
    spec.name: spec
    for spec in (
        # Y. LeCun, C. Cortes and C. Burges, "The MNIST database of handwritten digits" (1998)
        Spec("mnist", "ylecun/mnist", "image", ("label",), 10, (1, 28, 28), (60_000, 10_000), (60_000, 10_000)),
        # H. Xiao, K. Rasul and R. Vollgraf, "Fashion-MNIST" (2017)
        Spec(
            "fashion-mnist",
            "zalando-datasets/fashion_mnist",
            "image",
            ("label",),
            10,
            (1, 28, 28),
            (60_000, 10_000),
            (60_000, 10_000),
        ),
        # A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images" (2009)
        Spec("cifar10", "uoft-cs/cifar10", "img", ("label",), 10, (3, 32, 32), (50_000, 10_000), (50_000, 10_000)),
        # Z. Liu, P. Luo, X. Wang and X. Tang, "Deep Learning Face Attributes in the Wild" (2015)
        Spec(
            "celeba",
            "flwrlabs/celeba",
            "image",
            ATTRIBUTES,
            40,
            (3, 64, 64),
            (162_770, 19_962),
            (50_000, 20_000),
            cropped=True,
            strata=("Male", "Smiling", "Young"),
        ),
    )
}
