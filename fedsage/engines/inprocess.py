"""Owners as objects in this process. Only bytes pass between them and the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import torch

from fedsage.checkpoint.owner import Keeper
from fedsage.checkpoint.store import Due, once_a_second
from fedsage.protocol.door import Door, Link
from fedsage.protocol.messages import OwnerId
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Engine, Miss
from fedsage.protocol.procedures import Procedure, Reply, Request
from fedsage.protocol.wire import Message, decode, encoder

OnMessage: TypeAlias = Callable[[OwnerId, Message], None]
OnFrames: TypeAlias = Callable[[int, Procedure[Any, Any, Any], OwnerId, bytes, bytes], None]


def ignore_message(owner: OwnerId, message: Message) -> None:
    """For callers that record nothing."""


def ignore_frames(
    exchange: int,
    procedure: Procedure[Any, Any, Any],
    owner: OwnerId,
    asked: bytes,
    answer: bytes,
) -> None:
    """For callers that keep no bytes."""


def no_links(owner: OwnerId) -> Sequence[Link]:
    """For owners whose replies leave as they are."""
    return ()


class InProcessEngine(Engine):
    """Runs every procedure on every owner, ``workers`` owners at a time.

    Every message is encoded, counted and decoded again, so that no owner ever shares an
    object with the server or with another owner. The result does not depend on ``workers``;
    their threads use as many threads for dense products as the one that made the engine.
    With a ``folder``, every owner keeps there what it needs to continue after a kill.
    ``links`` are what an owner's replies pass through at its door.
    """

    def __init__(
        self,
        owners: Sequence[DataOwner],
        workers: int = 1,
        on_message: OnMessage = ignore_message,
        folder: Path | None = None,
        links: Callable[[OwnerId], Sequence[Link]] = no_links,
    ) -> None:
        super().__init__([owner.id for owner in owners])
        self.data_owners = {owner.id: owner for owner in owners}
        self.keepers = {} if folder is None else {
            owner.id: Keeper(
                owner, owner.plan.asks.values(), folder / f"owner-{owner.id}", due=self.due
            )
            for owner in owners
        }  # fmt: skip
        self.doors = {owner.id: Door({}, owner.plan, links(owner.id)) for owner in owners}
        threads = torch.get_num_threads()  # new threads would not inherit this
        self._pool = ThreadPoolExecutor(workers, "owner", torch.set_num_threads, (threads,))
        self._map = map if workers == 1 else self._pool.map
        self._on_message = on_message
        self.on_frames: OnFrames = ignore_frames
        self.exchanges = 0  # carried so far

    @cached_property
    def due(self) -> Due:
        """Which rounds are kept: the same for the server and all owners."""
        return once_a_second()

    def carry(
        self,
        procedure: Procedure[Any, Request, Reply],
        requests: Mapping[OwnerId, Request],
        lot: int | None = None,
    ) -> dict[OwnerId, Reply | Miss]:
        """Carry requests there and replies back, as bytes, and count them."""
        frame_for = encoder(requests)

        def one(i: OwnerId) -> tuple[bytes, bytes, Reply]:
            frame = frame_for(i)
            door = self.doors[i]
            asked = door.asked(procedure.name)
            request = decode(asked.request, frame)
            if door.about_masks(asked):
                reply = asked.run(door.masks, request)
            elif self.keepers:
                reply = self.keepers[i].perform(asked, request)
            else:
                reply = asked.run(self.data_owners[i], request)
            answer = door.let_out(asked, reply, lot, request)
            return frame, answer, decode(procedure.reply, answer)

        replies: dict[OwnerId, Reply | Miss] = {}
        traffic = self.traffic[procedure.phase]
        for i, (asked, answered, reply) in zip(requests, self._map(one, requests), strict=True):
            traffic.down += len(asked)
            traffic.up += len(answered)
            replies[i] = reply
            self.on_frames(self.exchanges, procedure, i, asked, answered)
        self.exchanges += 1
        for i, request in requests.items():
            self._on_message(i, request)
            self._on_message(i, replies[i])
        return replies
