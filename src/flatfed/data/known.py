"""The published data sets flatfed knows: where they come from, what they hold, their statistics."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from flatfed.data.files import data_home
from flatfed.errors import SpecError, nearest


@dataclass(frozen=True)
class Download:
    """One file to fetch. digest is "algorithm:hexadecimal"; of what a .gz holds if unpacked."""

    url: str
    digest: str
    unpacked: bool = False

    @property
    def file(self) -> str:
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Piece:
    """Something that must be in the folder: a file by its content, or a number of files or rows."""

    path: str  # with * in it: files that match, which are counted
    size: int = 0
    sha256: str = ""
    count: int = 0  # of files, or of the rows of a CSV


@dataclass(frozen=True)
class Known:
    """A published set. mean and std are those of the papers (spec, recipes section 2)."""

    name: str
    folder: str
    classes: tuple[str, ...]
    samples: tuple[int, int]  # training, test
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    downloads: tuple[Download, ...] = field(default=(), repr=False)
    pieces: tuple[Piece, ...] = field(default=(), repr=False)

    def where(self, home: str | Path | None = None) -> Path:
        """Its folder."""
        return data_home(home) / self.folder

    @cached_property
    def remedy(self) -> str:
        """What to do when it is missing or damaged."""
        return f"Get it with: flatfed data get {self.name}"


FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker",
           "Bag", "Ankle boot")  # fmt: skip
OBJECTS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
DBPEDIA = ("Company", "EducationalInstitution", "Artist", "Athlete", "OfficeHolder",
           "MeanOfTransportation", "Building", "NaturalPlace", "Village", "Animal", "Plant",
           "Album", "Film", "WrittenWork")  # fmt: skip
OF_CIFAR_100 = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
    butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab
    crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo
    keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse
    mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy
    porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper
    snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television
    tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
FINE = tuple(OF_CIFAR_100.split())

ZALANDO = "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"
TORONTO = "https://www.cs.toronto.edu/~kriz/"
# What the four files hold: they have been compressed anew in more than one place.
IDX = {
    "train-images-idx3-ubyte": (
        47_040_016, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
    "train-labels-idx1-ubyte": (
        60_008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
    "t10k-images-idx3-ubyte": (
        7_840_016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
    "t10k-labels-idx1-ubyte": (
        10_008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
}  # fmt: skip
CIFAR_10 = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}

KNOWN = {
    known.name: known
    for known in (
        Known(
            "fashion-mnist", "fashion-mnist", FASHION, (60_000, 10_000), (0.1307,), (0.3081,),
            tuple(Download(f"{ZALANDO}{file}.gz", f"sha256:{sha256}", unpacked=True)
                  for file, (_, sha256) in IDX.items()),
            tuple(Piece(file, size, sha256) for file, (size, sha256) in IDX.items()),
        ),
        Known(
            "cifar-10", "cifar-10-batches-bin", OBJECTS, (50_000, 10_000),
            (0.491, 0.482, 0.447), (0.247, 0.243, 0.262),
            (Download(
                f"{TORONTO}cifar-10-binary.tar.gz",
                "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),),
            tuple(Piece(file, 30_730_000, sha256) for file, sha256 in CIFAR_10.items()),
        ),
        Known(
            "cifar-100", "cifar-100-binary", FINE, (50_000, 10_000),
            (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761),
            (Download(
                f"{TORONTO}cifar-100-binary.tar.gz",
                "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"),),
            (Piece("train.bin", 153_700_000,
                   "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
             Piece("test.bin", 30_740_000,
                   "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a")),
        ),
        Known(  # its publishers' own checksum is an MD5
            "cinic-10", "CINIC-10", OBJECTS, (90_000, 90_000),
            (0.4789, 0.4723, 0.4305), (0.2421, 0.2383, 0.2587),
            (Download("https://datashare.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz",
                      "md5:6ee4d0c996905fe93221de577967a372"),),
            (Piece("train/*/*.png", count=90_000), Piece("test/*/*.png", count=90_000)),
        ),
        Known(  # its 200 classes are named in its own files
            "tiny-imagenet", "tiny-imagenet-200", (), (100_000, 10_000),
            (0.4802, 0.4481, 0.3975), (0.2302, 0.2265, 0.2262),
            (Download(
                "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                "sha256:6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821"),),
            (Piece("train/*/images/*.JPEG", count=100_000), Piece("val/val_annotations.txt"),
             Piece("val/images/*.JPEG", count=10_000), Piece("words.txt")),
        ),
        Known(  # samples: of the subset that the papers use, 10 000 and 1 000 a class
            "dbpedia-14", "dbpedia_csv", DBPEDIA, (140_000, 14_000), (), (),
            (Download(
                "https://s3.amazonaws.com/fast-ai-nlp/dbpedia_csv.tgz",
                "sha256:42db5221ddedddb673a4cabcc5f3a7d869714c878bcfe4ba94b29d14aa38e417"),),
            (Piece("classes.txt"), Piece("train.csv", count=560_000),
             Piece("test.csv", count=70_000)),
        ),
    )
}  # fmt: skip


def known_set(name: str) -> Known:
    """The published set of that name."""
    if name not in KNOWN:
        raise SpecError(f"no data set {name!r} can be downloaded.\n{nearest(name, KNOWN)}")
    return KNOWN[name]
