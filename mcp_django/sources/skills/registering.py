"""``RegisteringSkills``: how a server takes folders of skills."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from mcp_django.conf import parse_all
from mcp_django.core.registry import Registry
from mcp_django.exceptions import AlreadyRegistered


class RegisteringSkills(Registry):
    """A registry that takes folders of skills."""

    def register_skills(
        self,
        folder: str | Path,
        /,
        *,
        prefix: str = "",
        permission: Any = None,
        scopes: Sequence[str] = (),
        rate: str | Sequence[str] = (),
        cache_ttl: timedelta = timedelta(0),
        cache_public: bool = False,
    ) -> None:
        """Offer each folder with a ``SKILL.md`` below this one as a skill (SEP-2640).

        A relative ``folder`` is beside the module that calls this. A folder in between that has no
        ``SKILL.md`` stands before the names of its skills, as ``prefix`` does: skills are
        ``skill://prefix/name``. ``permission`` and ``scopes`` hold for every file. A skill has up
        to 512 files of 16 MiB together, which are read now and kept in memory; hidden files are
        left out.

        Raises:
            AlreadyRegistered: there is a skill of one of these names; none of them is added.
            ImproperlyConfigured: one of them cannot be offered, or PyYAML is not installed (the
                extra ``skills``); the message names the file.
        """
        from mcp_django.sources.skills.folders import skills_in

        caller = sys._getframe(1).f_globals
        path = Path(folder)
        if not path.is_absolute():
            path = Path(str(caller.get("__file__", ""))).parent / path
        try:
            rates = parse_all(rate)
        except ValueError as exc:
            raise ImproperlyConfigured(f"register_skills: rate: {exc}.") from None
        options = {
            "permission": permission,
            "scopes": tuple(scopes),
            "rates": rates,
            "cache_ttl": cache_ttl,
            "cache_public": cache_public,
        }
        module = str(caller.get("__name__", ""))
        found = skills_in(path, prefix=prefix, module=module, options=options)
        for one in found:
            if one.key in self.resources:
                raise AlreadyRegistered(
                    f"There is a resource {one.key!r} already, from "
                    f"{self.resources[one.key].origin}; rename the folder of one of the skills, or "
                    "give register_skills() a prefix."
                )
        for one in found:
            self.add(one)
