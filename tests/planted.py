"""Code edited for a test: what hashes of code see from then on, without a file being touched."""

import ast
import importlib

from icl_lab.base import code
from icl_lab.runs import provenance

WRITTEN = code._tree.__wrapped__
CACHES = (code.code_hash, code._definitions, code._imports, provenance.code_of, provenance._parts)


class Edit(ast.NodeTransformer):
    """Puts a constant at the end of every function and class, or of those of one name."""

    def __init__(self, name=""):
        self.name = name

    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        if self.name in ("", node.name):
            node.body = [*node.body, ast.Expr(ast.Constant(12345))]
        return node

    def visit_ClassDef(self, node):
        return self.visit_FunctionDef(node)


def plant(monkeypatch, module, name=""):
    """Edit a module: all of its functions and classes, or those of one name."""
    importlib.import_module(module)

    def tree(which):
        found = WRITTEN(which)
        return Edit(name).visit(found) if which == module else found

    monkeypatch.setattr(code, "_tree", tree)
    forget()


def forget():
    """Forget what was hashed before."""
    for cached in CACHES:
        cached.cache_clear()
