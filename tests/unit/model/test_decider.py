"""Who decides, as users write it and as images show it."""

import pytest

from dovetail.api.names import DovetailMode
from dovetail.model.decider import MODES, Decider, DecidingController, in_mode, parse_decider, version_in, version_of


@pytest.mark.parametrize(
    ("text", "name", "release"),
    [
        ("karpenter", "Karpenter", None),
        ("karpenter@1.15", "Karpenter 1.15", (1, 15)),
        ("karpenter@v1.9.2", "Karpenter 1.9.2", (1, 9)),
        ("dovetail", "Dovetail", None),
        ("dovetail:guard", "Dovetail (guard)", None),
        ("dovetail:drive", "Dovetail (drive)", None),
    ],
)
def test_a_decider_is_read(text: str, name: str, release: tuple[int, int] | None) -> None:
    decider = parse_decider(text)
    assert (decider.name, decider.release) == (name, release)
    assert parse_decider(decider.text) == decider


@pytest.mark.parametrize(
    "text", ["", "Karpenter", "karpenter@", "karpenter@new", "karpenter:run", "dovetail@1.0", "dovetail:", "x" * 500]
)
def test_anything_else_is_refused_with_the_accepted_forms(text: str) -> None:
    with pytest.raises(ValueError, match="want karpenter, karpenter@"):
        parse_decider(text)


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("public.ecr.aws/karpenter/controller:1.15.0", "1.15.0"),
        ("public.ecr.aws/karpenter/controller:v0.37.1@sha256:abc", "0.37.1"),
        ("localhost:5000/karpenter/controller", None),
        ("karpenter:latest", None),
        ("", None),
    ],
)
def test_the_tag_of_an_image_names_the_version(image: str, version: str | None) -> None:
    assert version_in(image) == version


def test_the_mode_is_part_of_the_value() -> None:
    assert Decider(DecidingController.DOVETAIL, mode=DovetailMode.GUARD) == parse_decider("dovetail:guard")


@pytest.mark.parametrize(
    ("images", "version"),
    [
        ({"main": "mirror/kpt:1.15.0"}, "1.15.0"),
        ({"istio-proxy": "istio/proxyv2:1.20.1", "controller": "mirror/kpt:1.11.2"}, "1.11.2"),
        ({"proxy": "istio/proxyv2:1.20.1", "main": "mirror:5000/karpenter/controller:1.11.2@sha256:0"}, "1.11.2"),
        ({"proxy": "istio/proxyv2:1.20.1", "controller": "mirror/kpt:latest"}, None),
        ({"proxy": "istio/proxyv2:1.20.1", "main": "mirror/kpt:1.11.2"}, None),
        ({}, None),
    ],
)
def test_the_version_of_a_sidecar_is_not_karpenters(images: dict[str, str], version: str | None) -> None:
    assert version_of(images) == version


def test_guard_says_what_it_cannot_do() -> None:
    assert "cannot stop a command" in parse_decider("dovetail:guard").limits
    assert parse_decider("dovetail").limits == parse_decider("karpenter@1.15").limits == ""


@pytest.mark.parametrize(
    ("found", "mode", "text"),
    [
        ("karpenter@1.11", "karpenter", "karpenter@1.11"),
        ("karpenter@1.11", "guard", "dovetail:guard@1.11"),
        ("karpenter", "run", "dovetail"),
        ("dovetail", "karpenter", "karpenter"),
        ("dovetail:drive", "drive", "dovetail:drive"),
        ("dovetail:drive", "guard", "dovetail:guard"),
    ],
)
def test_somebody_else_acts_on_the_same_cluster(found: str, mode: str, text: str) -> None:
    assert mode in MODES
    decider = in_mode(mode, parse_decider(found), "a test says so")
    assert decider.text == text
    assert decider.reason == ("" if found == text else "a test says so")
