"""At the server: only members of the federation may connect."""

from __future__ import annotations

import json
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.fl_exception import NotAuthenticated
from nvflare.private.defs import ClientType

from fedsage.federation.kits.kit import FEDERATION, OURS
from fedsage.federation.kits.members import known_members


class Admission(FLComponent):  # type: ignore[misc]
    """Refuses owners that are not, or no longer, in the list of members.

    NVFlare checks afterwards that the certificate is that of the name which is given. The
    coordinator registers, too, and is no owner.
    """

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Look at everyone who registers, with the list as it is at that moment."""
        if event_type != EventType.CLIENT_REGISTER_RECEIVED:
            return
        ours = Path(fl_ctx.get_engine().args.workspace) / OURS
        members = known_members(json.loads((ours / FEDERATION).read_text()))
        peer = fl_ctx.get_peer_context()
        name = peer.get_identity_name() if peer else ""
        owner = fl_ctx.get_prop(FLContextKey.CLIENT_TYPE) == ClientType.REGULAR
        if name in members.removed or (owner and name not in members.owners):
            raise NotAuthenticated(f"'{name}' is not a member of this federation.")
