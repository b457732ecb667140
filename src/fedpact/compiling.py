"""How this library compiles its programs: a user waits for the compiler longer than for what it compiles."""

import functools
from collections.abc import Callable
from typing import Any

import jax

# On a processor XLA's earlier emitters of code take half as long as its present ones, and what they emit is as fast.
EARLIER_EMITTERS = {"xla_cpu_use_fusion_emitters": False}
UNOPTIMISED = {"xla_backend_optimization_level": 0}  # for programs that take microseconds however they are compiled
# jaxlib 0.10 forgets how to call LAPACK in some large programs, of several starts for one, if its pool has a single thread.
ONE_PROCESSOR = "No registered implementation for untyped custom call"


class Jitted:
    """A function compiled by `jax.jit` with this library's options. It is not to be called within another compiled function.

    - `static`: how many of the first arguments are compiled in (default 0).
    - `quickly`: compiled without optimisation (default False).
    """

    def __init__(self, function: Callable[..., Any], static: int = 0, quickly: bool = False) -> None:
        functools.update_wrapper(self, function)
        self.function, self.static = function, tuple(range(static))
        self.options: dict[str, Any] = EARLIER_EMITTERS | (UNOPTIMISED if quickly else {})

    @functools.cached_property
    def program(self) -> Any:
        return jax.jit(self.function, static_argnums=self.static, compiler_options=self.options)

    def clear_cache(self) -> None:
        self.program.clear_cache()

    def __call__(self, *arguments: Any) -> Any:
        return self._with_options(lambda: self.program(*arguments))

    def ahead(self, *arguments: Any) -> Any:
        """The program for arguments like these, compiled; it takes those that are not compiled in."""
        return self._with_options(lambda: self.program.lower(*arguments).compile())

    def _with_options(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except jax.errors.JaxRuntimeError as error:
            if ONE_PROCESSOR in str(error):
                told = "the compiler failed in a way that is known of large programs where a process may use one processor only"
                raise RuntimeError(
                    f"{told}: let it use two, or solve a smaller problem, such as without starts="
                ) from error
            if "No such compile option" not in str(error) or not self.options:
                raise
        # another version of JAX has other options
        self.options = {}
        del self.program
        return call()
