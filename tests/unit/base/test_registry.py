"""Formats by name: built-in, from installed packages, and from a notebook; and their conflicts."""

import configparser
import subprocess
import sys
from dataclasses import fields
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

import cdc_formats
from cdc_formats import Event, Format, get_format, list_formats, register_format
from cdc_formats.errors import (
    AmbiguousFormatError,
    MissingDependencyError,
    UnknownFormatError,
)
from cdc_formats.format import BUILT_IN, GROUP, claims_of
from tests.support.distributions import install
from tests.support.error_texts import error_test

pytestmark = pytest.mark.usefixtures("own_registrations")

ROOT = Path(cdc_formats.__file__).parent.parent


def make(identifier: str, name: str = "Acme") -> type[Format]:
    def read(self, key, value):
        return [Event.insert({"id": 1})]

    return type(
        name,
        (Format,),
        {
            "identifier": identifier,
            "read": read,
            "__module__": "acme.formats",
            "__qualname__": name,
        },
    )


CODE = """
from dataclasses import dataclass
from cdc_formats import Event, Format, read_object

@dataclass(frozen=True, kw_only=True)
class Installed(Format):
    identifier = "installed-json"
    shout: bool = False
    def read(self, key, value):
        return [Event.insert(read_object(value), path="$")]

class NoFormat:
    pass
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_the_table_is_the_only_registration_of_the_built_in_formats() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", "utf-8")
    assert GROUP not in config["options.entry_points"]
    assert list(BUILT_IN) == sorted(BUILT_IN)


def test_every_format_of_the_package_is_registered_and_loads() -> None:
    formats = {}
    for path in sorted((ROOT / "cdc_formats" / "formats").rglob("*.py")):
        module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for name, cls in vars(module).items():
            # type(), because Python 3.10 treats `dict[str, int]` as a class.
            if (
                issubclass(type(cls), type)
                and issubclass(cls, Format)
                and hasattr(cls, "identifier")
                and cls.__module__ == module.__name__
            ):
                formats[cls.identifier] = f"{cls.__module__}:{name}"
    assert formats == dict(BUILT_IN)
    assert {name: type(get_format(name)).__qualname__ for name in BUILT_IN} == {
        n: p.partition(":")[2] for n, p in BUILT_IN.items()
    }


def test_formats_are_found_without_an_installed_distribution(tmp_path: Path) -> None:
    """As on a cluster that received the package as a zip."""
    script = (
        "import cdc_formats as c; print(c.list_formats(), c.get_format('canal-json', "
        "table_include='a').table_include)"
    )
    import_path = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", import_path + script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert done.stdout.strip() == f"{sorted(BUILT_IN)} a"


# --------------------------------------------------------------------------------------------------
# installed packages


def test_an_installed_format_is_listed_and_loaded_with_its_options(site: Path) -> None:
    install(site, {"installed-json": "acme_one:Installed"}, modules={"acme_one": CODE})
    assert "installed-json" in list_formats()
    assert "acme_one" not in sys.modules
    format = get_format("installed-json", shout="true")
    assert format.shout is True
    assert format.decoder("id INT").decode(None, b'{"id": 1}')[0].row == (1,)


def test_an_identifier_that_two_packages_claim_is_ambiguous(site: Path) -> None:
    install(site, {"twice-json": "acme_two:Installed"}, "acme2", {"acme_two": CODE})
    install(site, {"twice-json": "acme_three:Installed"}, "acme3", {"acme_three": CODE})
    with pytest.raises(
        AmbiguousFormatError,
        match=(
            "'twice-json' is claimed by acme_three:Installed and by acme_two:Installed; uninstall "
            "one"
        ),
    ):
        get_format("twice-json")


def test_one_class_that_is_installed_twice_is_not_ambiguous(site: Path) -> None:
    install(site, {"installed-json": "acme_four:Installed"}, "acme4", {"acme_four": CODE})
    install(site, {"installed-json": "acme_four:Installed"}, "acme5")
    assert get_format("installed-json").identifier == "installed-json"


def test_a_package_that_claims_a_built_in_name_wins_or_is_ambiguous(site: Path) -> None:
    install(site, {"canal-json": "acme_five:Installed"}, "acme6", {"acme_five": CODE})
    claims = claims_of("canal-json")
    assert "acme_five:Installed" in claims
    if len(claims) > 1:  # if the package's own distribution is installed
        with pytest.raises(AmbiguousFormatError):
            get_format("canal-json")
    else:
        assert type(get_format("canal-json")).__name__ == "Installed"


@pytest.mark.parametrize(
    ("path", "modules", "error", "text"),
    [
        pytest.param(
            "no_such_module:X",
            {},
            MissingDependencyError,
            "needs no_such_module: pip install no_such_module",
            id="no module",
        ),
        pytest.param(
            "acme_needs:X",
            {"acme_needs": "import fastavro_is_not_here"},
            MissingDependencyError,
            "pip install fastavro_is_not_here",
            id="a need",
        ),
        pytest.param(
            "acme_name:Nothing",
            {"acme_name": CODE},
            UnknownFormatError,
            "this class does not exist",
            id="a missing class",
        ),
        pytest.param(
            "acme_class:NoFormat",
            {"acme_class": CODE},
            UnknownFormatError,
            "not a subclass of Format",
            id="no format",
        ),
    ],
)
def test_a_format_that_cannot_be_loaded_is_an_error_with_the_reason(
    site: Path, path: str, modules: dict, error: type[Exception], text: str
) -> None:
    install(site, {"broken-json": path}, "acme7", modules)
    assert "broken-json" in list_formats()
    with pytest.raises(error, match=text):
        get_format("broken-json")


# --------------------------------------------------------------------------------------------------
# registrations


@pytest.mark.parametrize(
    ("identifier", "name", "replace"),
    [("acme-json", "Other", True), ("acme-json", "Acme", False), ("canal-json", "Acme", True)],
    ids=["another class", "the same class, defined again", "a built-in name"],
)
def test_a_registration_is_replaced(identifier: str, name: str, replace: bool) -> None:
    first = register_format(make("acme-json"))
    assert (type(get_format("acme-json")), "acme-json" in list_formats()) == (first, True)
    again = register_format(make(identifier, name), replace=replace)
    assert type(get_format(identifier)) is again


def test_an_unknown_identifier_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UnknownFormatError) as caught:
        get_format("parquet")
    assert all(name in str(caught.value) for name in BUILT_IN)
    assert "did you mean" not in str(caught.value)


# --------------------------------------------------------------------------------------------------
# options


@pytest.mark.parametrize("spelled", ["table_include", "table-include", "table.include"])
def test_options_accept_flinks_names(spelled: str) -> None:
    assert get_format("canal-json", **{spelled: "a.*"}) == get_format(
        "canal-json", table_include="a.*"
    )


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("FALSE", False), (True, True), (False, False)]
)
def test_booleans_can_be_text(text: object, value: bool) -> None:
    assert get_format("canal-json", error_excerpt=text).error_excerpt is value


WITH_TIMESTAMP_STANDARD = [
    "canal-json",
    "changelog-json",
    "debezium-json",
    "maxwell-json",
    "ogg-json",
]
"""The formats that have the option in Flink as well."""


@pytest.mark.parametrize("identifier", sorted(BUILT_IN))
def test_every_option_has_a_default_and_is_documented(identifier: str) -> None:
    cls = type(get_format(identifier))
    for option in fields(cls):
        if option.name not in {each.name for each in fields(Format)}:  # documented there
            assert option.name in (cls.__doc__ or ""), f"{option.name} is not in the docstring"


class Empty(Format):
    """A format without a decoder and an encoder."""

    identifier = "empty-json"


INVALID: list[tuple[str, dict[str, str]]] = [
        ("canal-json", {"table_inclued": "x"}),
        ("canal-json", {"table.inclued": "x"}),
        ("canal-json", {"binary_handling_mode": "utf8"}),
        ("debezium-json", {"schema_include": "maybe"}),
        ("debezium-json", {"decimal_handling_mode": "Precise"}),
        ("debezium-json", {"time_precision_mode": "seconds"}),
        ("debezium-json", {"binary_handling_mode": "latin1"}),
        ("debezium-json", {"bigint_unsigned_handling_mode": "string"}),
        ("debezium-json", {"unavailable_value_placeholder": ""}),
        *[(name, {"timestamp_format_standard": "iso"}) for name in WITH_TIMESTAMP_STANDARD],
        ("upsert-kafka", {"json_timestamp_format_standard": "iso"}),
        ("upsert-kafka", {"value_format": "protobuf"}),
        ("upsert-kafka", {"value_fields_include": "all"}),
        ("upsert-kafka", {"key_fields_prefix": "k_"}),
        ("upsert-kafka", {"csv_field_delimiter": ""}),
        ("upsert-kafka", {"csv_quote_character": "''"}),
        ("upsert-kafka", {"csv_escape_character": "ab"}),
        ("upsert-kafka", {"raw_charset": "EBCDIC-9"}),
        ("upsert-kafka", {"raw_charset": "hex"}),
        ("upsert-kafka", {"raw_endianness": "big"}),
        ("upsert-kafka", {"json_null": "ignore"}),
        *((identifier, {"rounding": "up"}) for identifier in sorted(BUILT_IN)),
    # Flink's other options.
    *(
        ("canal-json", {option: "true"})
        for option in (
            "ignore-parse-errors",
            "encode.ignore-null-fields",
            "encode.decimal-as-plain-number",
        )
    ),
]  # fmt: skip
test_error_texts = error_test(
    __file__,
    {
        **{
            f"an invalid option, {number}": lambda identifier=identifier, options=options: (
                get_format(identifier, **options)
            )
            for number, (identifier, options) in enumerate(INVALID, 1)
        },
        **{
            f"an invalid regular expression of {identifier}": lambda identifier=identifier: (
                get_format(identifier, table_include="(").decoder("id INT")
            )
            for identifier in ("canal-json", "maxwell-json", "debezium-json", "ogg-json")
        },
        **{
            f"a class whose identifier is {identifier!r}": lambda identifier=identifier: (
                register_format(make(identifier))
            )
            for identifier in ("", None, 5)
        },
        "another class of a registered identifier": lambda: [
            register_format(make("acme-json", name)) for name in ("Acme", "Other")
        ],
        "a class with a built-in name": lambda: register_format(make("canal-json")),
        **{
            f"a misspelled identifier, {typed}": partial(get_format, typed)
            for typed in ("canal-jsn", "debezium_json", "upsert-kafak")
        },
        "a format without a decoder": lambda: Empty().decoder("id INT").decode(None, b"{}"),
        "a format that is only read": lambda: Empty().encoder("id INT"),
    },
)
