"""A comparison in words and pictures: tables, figures, and one page that holds them all."""

from icl_lab.comparison.page.facts import Facts as Facts
from icl_lab.comparison.page.facts import facts_of as facts_of
from icl_lab.comparison.page.figures import Picture as Picture
from icl_lab.comparison.page.figures import pictures as pictures
from icl_lab.comparison.page.html import html as html
from icl_lab.comparison.page.html import render as render
from icl_lab.comparison.page.tables import Row as Row
from icl_lab.comparison.page.tables import Section as Section
from icl_lab.comparison.page.tables import Table as Table
from icl_lab.comparison.page.tables import brief as brief
from icl_lab.comparison.page.tables import divergences as divergences
from icl_lab.comparison.page.tables import markdown as markdown
from icl_lab.comparison.page.tables import markdown_rows as markdown_rows
from icl_lab.comparison.page.tables import table as table
from icl_lab.comparison.page.tables import tuning as tuning
from icl_lab.comparison.page.words import finding as finding
