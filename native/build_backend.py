"""The build backend: setuptools, with the native decoder if Rust can build it.

Without Rust, or if the build fails, the package is the pure one: Python decodes. The environment
variable CDC_NATIVE decides otherwise: with 0 nothing is built, with 1 a failed build is an error.
"""

import os
from pathlib import Path

from setuptools import build_meta, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools_rust.build import build_rust

SOURCES = ("*.md", "*.py", "*.toml", "Cargo.lock", "src/*.rs")
_CHOICE = os.environ.get("CDC_NATIVE", "")


class BuildDecoder(build_rust):
    """Builds the native decoder, or says in one line why Python decodes."""

    # setuptools-rust runs it as a part of two other commands.
    is_done = False

    def run(self) -> None:
        (extension,) = self.extensions
        if self.is_done or (_CHOICE == "0" and self.inplace):
            return
        self.is_done = True
        # What an earlier build left would be packed, and would decode as an earlier release did.
        Path(self.get_dylib_ext_path(extension, extension.name)).unlink(missing_ok=True)
        if _CHOICE == "0":
            return
        # The library is the same for every Python: the environments of a clone share one build.
        os.environ.setdefault("PYO3_NO_PYTHON", "1")
        try:
            super().run()
        except Exception as error:
            if _CHOICE == "1":
                raise
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reason = next((line for line in lines if line.startswith("error")), lines[0])
            print(f"The native decoder is not built, and Python decodes: {reason}")


class SourcesOfDecoder(build_ext):
    """Adds the crate to the sdist."""

    def get_source_files(self) -> list[str]:
        crate = Path("native")
        files = [str(path) for pattern in SOURCES for path in sorted(crate.glob(pattern))]
        return [*super().get_source_files(), *files]


class Wheel(bdist_wheel):
    """A wheel whose tag follows what was built: one without the library is for any platform."""

    def run(self) -> None:
        self.run_command("build")
        built = Path(self.get_finalized_command("build").build_lib, "normalize")
        if not any(path.suffix in (".so", ".pyd") for path in built.glob("_native*")):
            self.distribution.has_ext_modules = lambda: False
            self.root_is_pure = True
        super().run()


class Backend(build_meta._BuildMetaBackend):
    """Runs setuptools with these commands, as a file setup.py would."""

    def run_setup(self, setup_script: str = "setup.py") -> None:
        setup(
            cmdclass={
                "bdist_wheel": Wheel,
                "build_ext": SourcesOfDecoder,
                "build_rust": BuildDecoder,
            }
        )


_backend = Backend()
get_requires_for_build_wheel = _backend.get_requires_for_build_wheel
get_requires_for_build_sdist = _backend.get_requires_for_build_sdist
get_requires_for_build_editable = _backend.get_requires_for_build_editable
prepare_metadata_for_build_wheel = _backend.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = _backend.prepare_metadata_for_build_editable
build_wheel = _backend.build_wheel
build_sdist = _backend.build_sdist
build_editable = _backend.build_editable
