"""Check if this machine is ready for `make`; print what is missing and the command to install it.

    python3 tools/check_prerequisites.py [python] [java]      default: both; exit code 1 if
    something is missing

Runs before anything is downloaded, also on the old Pythons that it refuses. Use only the standard
library, and only syntax and functions that Python 2.7 has.
"""

import glob
import os
import re
import subprocess
import sys

# PySpark 4.0 is released for Python up to 3.13, and so 3.14 is proposed last.
# Spark's Hadoop calls a method that Java 23 and newer refuse (JDK-8328643).
PYTHONS = [(3, 13), (3, 12), (3, 11), (3, 10), (3, 14)]
JAVAS = range(17, 22)

JAVA_HOMES = [
    "/usr/lib/jvm/*",
    "/opt/homebrew/opt/openjdk@*",
    "/usr/local/opt/openjdk@*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    os.path.expanduser("~/.sdkman/candidates/java/*"),
]


def main(names):
    """Print a sentence for each missing prerequisite; return the exit code."""
    checks = {"python": python_problem, "java": java_problem}
    problems = [checks[name]() for name in names or sorted(checks)]
    for problem in filter(None, problems):
        sys.stderr.write(problem + "\n")
    return 1 if any(problems) else 0


def python_problem():
    """Return the problem with the Python that runs this script, None if there is no problem."""
    if sys.version_info[:2] not in PYTHONS:
        sentence = "Python 3.10 to 3.14 is required, but {0} is {1}.{2}: {3}"
        return sentence.format(
            sys.executable, sys.version_info[0], sys.version_info[1], python_command()
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        package = "python{0}.{1}-venv".format(*sys.version_info)
        command = (
            install("apt-get", package)
            if find_program("apt-get")
            else "install its modules venv and ensurepip"
        )
        return "{0} cannot make virtual environments: {1}".format(sys.executable, command)
    return None


def python_command():
    """Return the command that selects or installs a suitable Python."""
    names = ["python{0}.{1}".format(*version) for version in PYTHONS]
    for name in names:
        # Run it: version managers put programs on the PATH that only report that they are not
        # installed.
        if find_program(name) and output_of([name, "--version"]).startswith("Python 3."):
            return "run make with PYTHON=" + name
    if find_program("brew"):
        return install("brew", "python@3.13") + ", then run make with PYTHON=python3.13"
    if find_program("apt-get"):
        for name in filter(has_apt_package, names):
            return "{0} {1}-venv, then run make with PYTHON={1}".format(
                install("apt-get", name), name
            )
    if find_program("dnf"):
        return install("dnf", "python3.12") + ", then run make with PYTHON=python3.12"
    return (
        "install one from https://www.python.org/downloads/, then run make with PYTHON=python3.13"
    )


def java_problem():
    """Return the problem with the Java that Spark would use, None if there is no problem."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else find_program("java")
    version = java_version(java) if java else None
    if version in JAVAS:
        return None
    if version:
        problem = "{0} is Java {1}".format(java, version)
    elif home:
        problem = "JAVA_HOME={0} does not contain one".format(home)
    else:
        problem = "none was found"
    return "A JDK 17 or 21 is required, but {0}: {1}".format(problem, java_command())


def java_command():
    """Return the command that selects or installs a suitable Java."""
    for home in sorted(path for pattern in JAVA_HOMES for path in glob.glob(pattern)):
        if java_version(os.path.join(home, "bin", "java")) in JAVAS:
            return "export JAVA_HOME=" + home
    if find_program("brew"):
        return install("brew", "openjdk@21") + ' && export JAVA_HOME="$(brew --prefix openjdk@21)"'
    if find_program("apt-get"):
        packages = ["openjdk-21-jdk-headless", "openjdk-17-jdk-headless"]
        return install("apt-get", next(filter(has_apt_package, packages), packages[-1]))
    if find_program("dnf"):
        return install("dnf", "java-21-openjdk-headless")
    return "install one from https://adoptium.net/ and export JAVA_HOME"


def java_version(java):
    """Return a Java program's reported major version (1 for Java 8), None if it does not run."""
    version = re.search(r'version "(\d+)', output_of([java, "-version"]))
    return int(version.group(1)) if version else None


def install(manager, package):
    """Return the command that installs a package."""
    # Homebrew refuses root; a container's root has no sudo.
    sudo = "" if manager == "brew" or os.geteuid() == 0 else "sudo "
    return "{0}{1} install {2}".format(sudo, manager, package)


def has_apt_package(package):
    """Whether this release of the distribution has the package."""
    return bool(output_of(["apt-cache", "--quiet=2", "show", package], with_errors=False))


def find_program(name):
    """Return a program's path, None if it is not on the PATH (Python 2.7 has no shutil.which)."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def output_of(command, with_errors=True):
    """Return the output of a program, "" if it cannot be run."""
    errors = subprocess.STDOUT if with_errors else subprocess.PIPE
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
    except OSError:
        return ""
    return process.communicate()[0].decode("utf-8", "replace")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
