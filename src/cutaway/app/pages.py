"""The methods' pages, collected from their folders by the catalog."""

from cutaway.catalog import method_module, methods
from cutaway.report.method_page import MethodPage

PAGES: dict[str, MethodPage] = {name: method_module(name, "page").PAGE for name in methods()}
