"""fedpact: models trained across parties who cannot share their data, under constraints, with a certificate."""

from fedpact import datasets as datasets
from fedpact import postprocess as postprocess
from fedpact import protocol as protocol
from fedpact import sets as sets
from fedpact.__about__ import VERSION as __version__
from fedpact.algorithms.averaging.fed_avg import FedAvg
from fedpact.algorithms.averaging.fed_prox import FedProx
from fedpact.algorithms.averaging.fed_sgd import FedSGD
from fedpact.algorithms.averaging.scaffold import SCAFFOLD
from fedpact.algorithms.fair_vfl.fed_bcd import FedBCD
from fedpact.algorithms.fair_vfl.method import FairVFL
from fedpact.algorithms.fair_vfl.pace import Clock
from fedpact.algorithms.interior_point.method import InteriorPoint
from fedpact.algorithms.parts.schedules import Decay, Growth, Schedule
from fedpact.algorithms.personal.pc_fedavg import PCFedAvg
from fedpact.algorithms.personal.projected import PersonalProjected
from fedpact.algorithms.prox_al.admm import ADMM
from fedpact.algorithms.prox_al.central import CentralProxAL
from fedpact.algorithms.prox_al.inner import Inner
from fedpact.algorithms.prox_al.lbfgs import LBFGS
from fedpact.algorithms.prox_al.method import ProxAL
from fedpact.algorithms.prox_al.newton import Newton
from fedpact.algorithms.prox_al.tolerances import Geometric, InverseSquare
from fedpact.algorithms.ssca.method import SSCA
from fedpact.certificate import Certificate, ConstraintReport
from fedpact.engines.mesh import Mesh
from fedpact.federation.columns import ColumnParties, split_columns
from fedpact.federation.rows import Parties, split_rows
from fedpact.federation.table import Table
from fedpact.privacy.residuals import EncryptedResiduals
from fedpact.problem.columns import col
from fedpact.problem.expressions import Constraint, Expression
from fedpact.problem.fairness import demographic_parity_gap, equal_opportunity_gap, equalized_odds_gap
from fedpact.problem.functions import largest, mean, value
from fedpact.problem.losses import logistic_loss, loss, positive_rate, smoothed_hinge_loss, softmax_loss, squared_loss
from fedpact.problem.models import Model, equinox_model, linear, mlp, model, squared_norm
from fedpact.problem.personal import Personal
from fedpact.problem.regularizers import box, group, l1, l2
from fedpact.problem.split import chain, split_model
from fedpact.problem.statement import Problem, minimize
from fedpact.protocol.algorithm import Algorithm
from fedpact.run.audit import Audit, Leak, audit
from fedpact.run.history import History
from fedpact.run.result import Result
from fedpact.run.selection import Explanation, explain
from fedpact.run.solve import solve
from fedpact.run.verify import Verification, verify
from fedpact.sets import l1_ball

__all__ = [
    "ADMM",
    "LBFGS",
    "SCAFFOLD",
    "SSCA",
    "Algorithm",
    "Audit",
    "CentralProxAL",
    "Certificate",
    "Clock",
    "ColumnParties",
    "Constraint",
    "ConstraintReport",
    "Decay",
    "EncryptedResiduals",
    "Explanation",
    "Expression",
    "FairVFL",
    "FedAvg",
    "FedBCD",
    "FedProx",
    "FedSGD",
    "Geometric",
    "Growth",
    "History",
    "Inner",
    "InteriorPoint",
    "InverseSquare",
    "Leak",
    "Mesh",
    "Model",
    "Newton",
    "PCFedAvg",
    "Parties",
    "Personal",
    "PersonalProjected",
    "Problem",
    "ProxAL",
    "Result",
    "Schedule",
    "Table",
    "Verification",
    "__version__",
    "audit",
    "box",
    "chain",
    "col",
    "datasets",
    "demographic_parity_gap",
    "equal_opportunity_gap",
    "equalized_odds_gap",
    "equinox_model",
    "explain",
    "group",
    "l1",
    "l1_ball",
    "l2",
    "largest",
    "linear",
    "logistic_loss",
    "loss",
    "mean",
    "minimize",
    "mlp",
    "model",
    "positive_rate",
    "postprocess",
    "protocol",
    "sets",
    "smoothed_hinge_loss",
    "softmax_loss",
    "solve",
    "split_columns",
    "split_model",
    "split_rows",
    "squared_loss",
    "squared_norm",
    "value",
    "verify",
]
