"""The package's folders. All else that a build needs is in pyproject.toml, which can find packages
or say where one lies, but not both."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["specviz", "specviz.*"]), "specviz.assets"],
    # The data files stay at the top of the repository, where a Space and its README read them.
    package_dir={"specviz.assets": "assets"},
)
