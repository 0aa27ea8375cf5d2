"""Tables of data, from a file or an array to the scatter matrix."""

from ggmflow.data.check import DataWarning, check_data
from ggmflow.data.scatter import Scatter

__all__ = ["Scatter", "check_data", "DataWarning"]
