"""Data sets: two that come with scikit-learn, nine of the papers, and a quadratic programme with a known optimum."""

from fedpact.datasets.bundled import breast_cancer, digits
from fedpact.datasets.cifar import cifar10
from fedpact.datasets.fair import adult, compas, crime
from fedpact.datasets.images import mnist
from fedpact.datasets.papers import adult_a, adult_b, breast_cancer_wisc, monks_1
from fedpact.datasets.quadratic import Lcqp, lcqp

__all__ = [
    "Lcqp",
    "adult",
    "adult_a",
    "adult_b",
    "breast_cancer",
    "breast_cancer_wisc",
    "cifar10",
    "compas",
    "crime",
    "digits",
    "lcqp",
    "mnist",
    "monks_1",
]
