"""Data sets as tables, and random quadratic programmes with a known optimum.

    breast_cancer, digits                          bundled with scikit-learn
    breast_cancer_wisc, monks_1, adult_a, adult_b  of He, Peng and Sun (2024)
    adult, compas, crime                           of Liu and others (arXiv:2109.08344), for fair vertical federated learning
    mnist, cifar10                                 images
    lcqp                                           quadratic programmes with linear equality constraints

Data that are not bundled are read from the folder in the environment variable FEDPACT_DATA or from the cache folder, and else
downloaded once.
"""

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
