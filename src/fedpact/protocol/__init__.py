"""The protocol between methods and engines: what a method is, what an engine is, and what passes between them.

To write a method, see docs/write_a_method.md: options are an `Algorithm`, what runs is a `Method` (or `OnePhase`), made of
`Phase`s. To write an engine, see docs/write_an_engine.md: an `Engine` connects a bound problem to its parties.
"""

from fedpact.federation.setting import Setting as Setting
from fedpact.protocol.algorithm import Algorithm as Algorithm
from fedpact.protocol.algorithm import Answer as Answer
from fedpact.protocol.algorithm import Begin as Begin
from fedpact.protocol.algorithm import Disclosed as Disclosed
from fedpact.protocol.algorithm import FirstParameters as FirstParameters
from fedpact.protocol.algorithm import Goal as Goal
from fedpact.protocol.algorithm import Info as Info
from fedpact.protocol.algorithm import Method as Method
from fedpact.protocol.algorithm import OnePhase as OnePhase
from fedpact.protocol.algorithm import Status as Status
from fedpact.protocol.engine import BoundProblem as BoundProblem
from fedpact.protocol.engine import Engine as Engine
from fedpact.protocol.engine import HostNetwork as HostNetwork
from fedpact.protocol.engine import RunNetwork as RunNetwork
from fedpact.protocol.messages import Reply as Reply
from fedpact.protocol.messages import combine as combine
from fedpact.protocol.options import check as check
from fedpact.protocol.phases import Ask as Ask
from fedpact.protocol.phases import GradientStep as GradientStep
from fedpact.protocol.phases import Phase as Phase
from fedpact.protocol.phases import ServerData as ServerData
from fedpact.protocol.phases import play as play
