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

A loop of asyncio goes on behind the cut: for other tasks that it has cancelled, and then for async
generators.  Those may use the client in their end, and have it `go_on`.

trio raises Ctrl-C in none of them, but in the main task.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING

import anyio

from .event_loop import loop_of_task

if TYPE_CHECKING:
    from trio.lowlevel import Task as SystemTask


class OwnTasks:
    """See the module.  Made in the event loop in which they run."""

    def __init__(
        self, failed: Callable[[Exception], object], is_waiting: Callable[[], bool]
    ) -> None:
        """In a task of the loop.

        `failed` is called with each failure; `is_waiting`: whether those that are cut go on at
        once.  They raise nothing.
        """
        self._failed = failed
        self._is_waiting = is_waiting
        self.loop = loop_of_task()
        """That of asyncio; None: trio's."""
        self._context = copy_context()
        self._call_soon: Callable[[Callable[[], object]], object]
        if self.loop is None:
            from trio.lowlevel import current_trio_token  # here: asyncio's programs do without

            self._call_soon = current_trio_token().run_sync_soon
        else:
            self._call_soon = self.loop.call_soon_threadsafe
        # Those that have not ended.  A loop of asyncio itself does not keep its tasks.
        self._living: dict[anyio.CancelScope, asyncio.Task[None] | SystemTask] = {}
        self._none_left = anyio.Event()
        # Of asyncio: each begins one that was cut once more.
        self._cut: list[Callable[[], None]] = []
        self._goer: asyncio.Task[None] | None = None

    @property
    def is_cut(self) -> bool:
        """Whether some can `go_on`."""
        return bool(self._cut)

    @property
    def is_gone(self) -> bool:
        """Of an open client: whether its event loop has ended.  Nothing may be told to it then."""
        return not self._living if self.loop is None else self.loop.is_closed()

    def start(self, run: Callable[..., Awaitable[None]], *args: object, name: str) -> None:
        """Have `run(*args)` run.  Not when their event loop has ended."""
        if not self._living:
            self._none_left = anyio.Event()
        scope = anyio.CancelScope()
        context = self._context.copy()
        if self.loop is None:
            from trio.lowlevel import spawn_system_task

            self._living[scope] = spawn_system_task(
                self._run_in_trio, scope, run, args, name=name, context=context
            )
            return
        create = partial(self.loop.create_task, self._run(scope, run, args), name=name)
        self._living[scope] = task = context.run(create)
        again = partial(self.start, run, *args, name=name)
        task.add_done_callback(partial(self._done, scope, again))

    def go_on(self) -> None:
        """Begin those anew that were cut."""
        cut, self._cut = self._cut, []
        for again in cut:
            again()

    def soon(self, act: Callable[[], object]) -> None:
        """Have `act` called in the loop; not when that has ended.  In any thread, and at any place,
        as the collector of garbage comes to."""
        with suppress(RuntimeError):  # it has ended
            self._call_soon(act if self.loop is None else partial(self._within, act))

    def _within(self, act: Callable[[], object]) -> None:
        """Of asyncio: anyio wants a task for what is done there.  One that is cancelled before its
        first turn, with all others, is followed by another."""

        async def run() -> None:
            act()

        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled():
                self._within(act)

        assert self.loop is not None
        self._goer = self.loop.create_task(run())
        self._goer.add_done_callback(ended)

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

    def _done(
        self, scope: anyio.CancelScope, again: Callable[[], None], task: asyncio.Task[None]
    ) -> None:
        """Of asyncio: also what was cancelled before its first turn comes here."""
        # Cancelled by nobody: by what it awaits, as the provider of a token.
        is_cut = task.cancelling() > 0 if task.cancelled() else task.exception() is not None
        self._ended(scope)
        if is_cut and not scope.cancel_called:
            self._cut.append(again)
            if self._is_waiting():
                self._within(self.go_on)

    def _ended(self, scope: anyio.CancelScope) -> None:
        self._living.pop(scope, None)
        if not self._living:
            self._none_left.set()

    def cancel(self) -> None:
        """Have all end."""
        self._cut.clear()
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
