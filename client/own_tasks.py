"""Tasks that are a client's own, on trio and on asyncio: in no task group of its caller's.

A task group is a part of the task that entered it and lies in its scopes: a client that had one
could be closed only there, and only before what was opened before it (0434).  On asyncio these are
tasks of the loop, on trio system tasks.  All have the context variables of who opened the client,
whoever has it send.

They end in one of four ways:

    run to its end
    cancel          by their client, which waits for them (`wait_ended`)
    a failure       given to `failed`, and not raised: a system task that raises ends trio's run
    cut             by their event loop, at its end: asyncio.run, and trio behind the main task,
                    cancel what is left

What is no Exception (SystemExit of a signal's handler) is raised, and ends the loop.

trio raises Ctrl-C in none of them, but in the main task.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from trio.lowlevel import Task as SystemTask


class OwnTasks:
    """See the module.  Made in the event loop in which they run."""

    def __init__(self, failed: Callable[[Exception], object]) -> None:
        """`failed` is called with each failure; it raises nothing."""
        self._failed = failed
        self.loop = loop_here()
        """That of asyncio; None: trio's."""
        self._context = copy_context()
        # Those that have not ended.  A loop of asyncio itself does not keep its tasks.
        self._living: dict[anyio.CancelScope, asyncio.Task[None] | SystemTask] = {}
        self._none_left = anyio.Event()

    @property
    def is_cut(self) -> bool:
        """Of an open client: whether its event loop has ended them.  That of asyncio may go on: it
        ends what is left of async generators behind its tasks."""
        return not self._living

    @property
    def is_gone(self) -> bool:
        """Of an open client: whether its event loop has ended.  Nothing may be told to it then."""
        return self.is_cut if self.loop is None else self.loop.is_closed()

    def start(self, run: Callable[..., Awaitable[None]], *args: object, name: str) -> None:
        """Have `run(*args)` run.  Not when their event loop has ended."""
        if not self._living:
            self._none_left = anyio.Event()
        scope = anyio.CancelScope()
        context = self._context.copy()
        if self.loop is None:
            from trio.lowlevel import spawn_system_task  # here: asyncio's programs do without

            self._living[scope] = spawn_system_task(
                self._run_in_trio, scope, run, args, name=name, context=context
            )
            return
        create = partial(self.loop.create_task, self._run(scope, run, args), name=name)
        self._living[scope] = task = context.run(create)
        task.add_done_callback(partial(self._done, scope))

    async def _run(
        self,
        scope: anyio.CancelScope,
        run: Callable[..., Awaitable[None]],
        args: tuple[object, ...],
    ) -> None:
        try:
            with scope:
                await run(*args)
        except Exception as exc:
            self._failed(exc)

    async def _run_in_trio(
        self,
        scope: anyio.CancelScope,
        run: Callable[..., Awaitable[None]],
        args: tuple[object, ...],
    ) -> None:
        try:
            await self._run(scope, run, args)
        finally:
            self._ended(scope)

    def _done(self, scope: anyio.CancelScope, task: asyncio.Task[None]) -> None:
        """Of asyncio: also what was cancelled before its first turn comes here."""
        if not task.cancelled():
            task.exception()  # it was seen
        self._ended(scope)

    def _ended(self, scope: anyio.CancelScope) -> None:
        self._living.pop(scope, None)
        if not self._living:
            self._none_left.set()

    def cancel(self) -> None:
        """Have all end."""
        if not self.is_gone:
            for scope in self._living:
                scope.cancel()

    async def wait_ended(self) -> None:
        """Wait until none is left, whatever cancels or interrupts this meanwhile; that is raised
        then.  One of them waits for none."""
        if self.is_gone or anyio.get_current_task().id in map(id, self._living.values()):
            return
        cut: BaseException | None = None
        with anyio.CancelScope(shield=True):
            while self._living:
                try:
                    await self._none_left.wait()
                except BaseException as exc:
                    cut = cut or exc
        if cut is not None:
            raise cut


def loop_here() -> asyncio.AbstractEventLoop | None:
    """The loop of asyncio that runs in this thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
