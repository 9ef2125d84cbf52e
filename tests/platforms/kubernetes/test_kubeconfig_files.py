"""What is read from the files that kubectl reads: several together, tokens in files, and what is refused."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticdl.errors import UserError
from elasticdl.platforms.kubernetes.kubeconfig import Access, find_access


def write(path: Path, **sections: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    named = {"clusters": "cluster", "users": "user", "contexts": "context"}
    document: dict[str, Any] = {
        section: [{"name": name, named[section]: entry} for name, entry in entries.items()]
        for section, entries in sections.items()
        if section in named
    }
    if "current" in sections:
        document["current-context"] = sections["current"]
    path.write_text(yaml.safe_dump(document))
    return path


def access(*paths: Path, **more: str) -> Access:
    return find_access(environment={"KUBECONFIG": ":".join(map(str, paths))}, **more)


def one(folder: Path, *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> Path:
    return write(
        folder / "config",
        current="c",
        contexts={"c": {"cluster": "c", "user": "u"}},
        clusters={"c": {"server": "https://here:6443/", **(cluster or {})}},
        users={"u": user or {}},
    )


def test_several_files_are_one(tmp_path: Path) -> None:
    """The first that says something counts, and a path is relative to the file that it is in."""
    first = write(
        tmp_path / "a" / "config",
        current="work",
        contexts={"work": {"cluster": "lab", "user": "me", "namespace": "vision"}},
        users={"me": {"tokenFile": "keys/token"}},
    )
    second = write(
        tmp_path / "b" / "config",
        current="other",
        contexts={"work": {"cluster": "elsewhere"}, "other": {"cluster": "lab"}},
        clusters={"lab": {"server": "https://lab:6443", "tls-server-name": "kubernetes"}},
        users={"me": {"token": "of another user"}},
    )
    (tmp_path / "a" / "keys").mkdir()
    (tmp_path / "a" / "keys" / "token").write_text("mine\n")
    found = access(first, second, tmp_path / "not-there")
    assert (found.server, found.namespace, found.server_name) == ("https://lab:6443", "vision", "kubernetes")
    assert found.identity.headers() == {"Authorization": "Bearer mine"}
    other = access(first, second, context="other", namespace="speech")
    assert (other.namespace, other.identity.headers()) == ("speech", {})


def test_a_token_in_a_file_is_read_again_after_a_refusal(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    identity = access(one(tmp_path, user={"tokenFile": "token"})).identity
    assert identity.headers() == {"Authorization": "Bearer old"}
    token.write_text("new")
    assert identity.headers() == {"Authorization": "Bearer old"}
    assert identity.renew()
    assert identity.headers() == {"Authorization": "Bearer new"}


def test_missing_token_file_is_refused(tmp_path: Path) -> None:
    identity = access(one(tmp_path, user={"tokenFile": "token"})).identity
    with pytest.raises(UserError, match="token cannot be read: No such file"):
        identity.headers()


def test_a_token_that_cannot_be_read_again_is_kept(tmp_path: Path) -> None:
    """A disk that fails for a moment is no reason to give up what is accepted still."""
    token = tmp_path / "token"
    token.write_text("old")
    identity = access(one(tmp_path, user={"tokenFile": "token"})).identity
    assert identity.headers() == {"Authorization": "Bearer old"}
    token.unlink()
    identity.renew()
    assert identity.headers() == {"Authorization": "Bearer old"}
    # Nor is what has nothing in it yet.
    token.write_text("\n")
    assert identity.headers() == {"Authorization": "Bearer old"}
    token.write_text("new")
    assert identity.headers() == {"Authorization": "Bearer new"}


def test_a_home_that_cannot_be_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's home, say, or one with a name that no folder can have."""
    monkeypatch.setenv("HOME", f"/{'x' * 300}")
    with pytest.raises(UserError, match="No cluster is known: there is no file"):
        find_access(environment={})


def test_a_name_and_a_password(tmp_path: Path) -> None:
    identity = access(one(tmp_path, user={"username": "me", "password": "p"})).identity
    assert identity.headers() == {"Authorization": f"Basic {base64.b64encode(b'me:p').decode()}"}
    assert not identity.renew()


@pytest.mark.parametrize(
    ("part", "entry", "because"),
    [
        ("cluster", {"proxy-url": "http://proxy"}, "proxy-url, which the cluster 'c' has, is not supported"),
        ("user", {"as": "admin"}, "as, which the user 'u' has, is not supported"),
        ("user", {"as-groups": ["admins"]}, "as-groups, which the user 'u' has, is not supported"),
        ("user", {"auth-provider": {"name": "gcp"}}, "auth-provider"),
    ],
)
def test_unsupported_entries_are_rejected(
    tmp_path: Path, part: str, entry: dict[str, Any], because: str
) -> None:
    path = one(tmp_path, **{part: entry})
    with pytest.raises(UserError, match=because) as refused:
        access(path)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("context", "because"),
    [
        ("d", "there is no context 'd'"),
        ("lost", "there is no cluster 'gone'"),
        ("no-user", "there is no user 'gone'"),
    ],
)
def test_names_that_lead_nowhere(tmp_path: Path, context: str, because: str) -> None:
    path = write(
        tmp_path / "config",
        contexts={"lost": {"cluster": "gone"}, "no-user": {"cluster": "c", "user": "gone"}},
        clusters={"c": {"server": "https://here"}},
    )
    with pytest.raises(UserError, match=because):
        access(path, context=context)
    with pytest.raises(UserError, match="does not say which cluster is meant"):
        access(path)
