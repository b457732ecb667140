"""The names of fedpact. `fedpact/__init__.py` reads this file: a module is imported when one of its names is first used."""

from . import datasets as datasets
from . import postprocess as postprocess
from . import protocol as protocol
from . import sets as sets
from . import trackers as trackers
from .algorithms.averaging.fed_avg import FedAvg
from .algorithms.averaging.fed_prox import FedProx
from .algorithms.averaging.fed_sgd import FedSGD
from .algorithms.averaging.robust import MedianOfMeans, TrimmedMean
from .algorithms.averaging.scaffold import SCAFFOLD
from .algorithms.fair_vfl.fed_bcd import FedBCD
from .algorithms.fair_vfl.method import FairVFL
from .algorithms.fair_vfl.pace import Clock
from .algorithms.interior_point.method import InteriorPoint
from .algorithms.parts.schedules import Decay, Growth, Schedule
from .algorithms.personal.pc_fedavg import PCFedAvg
from .algorithms.personal.projected import PersonalProjected
from .algorithms.primal_dual.method import PrimalDual
from .algorithms.prox_al.admm import ADMM
from .algorithms.prox_al.central import CentralProxAL
from .algorithms.prox_al.inner import Inner
from .algorithms.prox_al.lbfgs import LBFGS
from .algorithms.prox_al.method import ProxAL
from .algorithms.prox_al.newton import Newton
from .algorithms.prox_al.tolerances import Geometric, InverseSquare
from .algorithms.ssca.general import Surrogate
from .algorithms.ssca.method import SSCA
from .certificate import Certificate, ConstraintReport
from .engines.mesh import Mesh
from .evaluation.rates import Rates
from .evaluation.table import Evaluation
from .federation.columns import ColumnParties, split_columns
from .federation.rows import Parties, split_rows
from .federation.table import Table
from .prediction.folder import load
from .prediction.predictor import Predictor
from .preparation.agreed import AgreedRecipe
from .preparation.prepare import prepare
from .preparation.recipe import Recipe
from .preparation.stated_steps import bins, impute, label, one_hot, ordinal, passthrough, scale, standardize
from .privacy.differential import DifferentialPrivacy, PrivacySpent
from .privacy.residuals import EncryptedResiduals
from .privacy.secure_sums import SecureAggregation
from .problem.columns import col
from .problem.expressions import Constraint, Expression
from .problem.fairness import demographic_parity_gap, equal_opportunity_gap, equalized_odds_gap
from .problem.functions import largest, mean, value
from .problem.losses import (
    decisions,
    logistic_loss,
    loss,
    positive_rate,
    smoothed_hinge_loss,
    softmax_loss,
    squared_loss,
)
from .problem.models import Model, equinox_model, linear, mlp, model, squared_norm
from .problem.named_rates import (
    error_rate,
    false_negative_rate,
    false_positive_rate,
    selection_rate,
    true_negative_rate,
    true_positive_rate,
)
from .problem.personal import Personal
from .problem.regularizers import box, group, l1, l2, prox
from .problem.split import chain, split_model
from .problem.statement import Problem, minimize
from .protocol.algorithm import Algorithm
from .run.ask_promise import promise
from .run.audit import Audit, Leak, audit
from .run.evaluate import evaluate
from .run.history import History
from .run.match import Matched, match
from .run.promise import Promise, Shown
from .run.result import Result
from .run.row_leaks import RowAudit, RowLeak
from .run.selection import Explanation, explain
from .run.solve import solve
from .run.tradeoff import Tradeoff, TradeoffEntry, tradeoff
from .run.verify import Verification, verify
from .sets import l1_ball

__version__: str

__all__ = [
    "ADMM",
    "LBFGS",
    "SCAFFOLD",
    "SSCA",
    "AgreedRecipe",
    "Algorithm",
    "Audit",
    "CentralProxAL",
    "Certificate",
    "Clock",
    "ColumnParties",
    "Constraint",
    "ConstraintReport",
    "Decay",
    "DifferentialPrivacy",
    "EncryptedResiduals",
    "Evaluation",
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
    "Matched",
    "MedianOfMeans",
    "Mesh",
    "Model",
    "Newton",
    "PCFedAvg",
    "Parties",
    "Personal",
    "PersonalProjected",
    "Predictor",
    "PrimalDual",
    "PrivacySpent",
    "Problem",
    "Promise",
    "ProxAL",
    "Rates",
    "Recipe",
    "Result",
    "RowAudit",
    "RowLeak",
    "Schedule",
    "SecureAggregation",
    "Shown",
    "Surrogate",
    "Table",
    "Tradeoff",
    "TradeoffEntry",
    "TrimmedMean",
    "Verification",
    "__version__",
    "audit",
    "bins",
    "box",
    "chain",
    "col",
    "datasets",
    "decisions",
    "demographic_parity_gap",
    "equal_opportunity_gap",
    "equalized_odds_gap",
    "equinox_model",
    "error_rate",
    "evaluate",
    "explain",
    "false_negative_rate",
    "false_positive_rate",
    "group",
    "impute",
    "l1",
    "l1_ball",
    "l2",
    "label",
    "largest",
    "linear",
    "load",
    "logistic_loss",
    "loss",
    "match",
    "mean",
    "minimize",
    "mlp",
    "model",
    "one_hot",
    "ordinal",
    "passthrough",
    "positive_rate",
    "postprocess",
    "prepare",
    "promise",
    "protocol",
    "prox",
    "scale",
    "selection_rate",
    "sets",
    "smoothed_hinge_loss",
    "softmax_loss",
    "solve",
    "split_columns",
    "split_model",
    "split_rows",
    "squared_loss",
    "squared_norm",
    "standardize",
    "trackers",
    "tradeoff",
    "true_negative_rate",
    "true_positive_rate",
    "value",
    "verify",
]
